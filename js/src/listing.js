/** What is known of a list: where each job on it stands. */

/** @import { LiveListOptions, Log, Snapshot } from "../windlass.js" */

import { guarded } from "./listener.js";

/**
 * One who watches it.
 *
 * @typedef {object} Reader
 * @property {(snapshot: Snapshot) => void} tell
 * @property {LiveListOptions} options
 * @property {boolean} ready whether it was told what was known when it came
 */

export class Listing {
  /** @type {Set<Reader>} */
  readers = new Set();
  /** @type {Map<string, Snapshot>} */
  #known = new Map();
  /** Jobs that the connection of now has not yet told. @type {Set<string>} */
  #before = new Set();
  #whole = false;

  /**
   * @param {string} text the list's filter, as a query
   * @param {Log} log
   */
  constructor(text, log) {
    this.text = text;
    this.log = log;
  }

  /** A connection begins, which will tell all of the list. */
  begin() {
    this.#before = new Set(this.#known.keys());
  }

  /**
   * What is known is not told again, nor what is older.
   *
   * @param {Snapshot} said
   */
  take(said) {
    const known = this.#known.get(said.id);
    this.#before.delete(said.id);
    if (known !== undefined && said.listed && said.seq <= known.seq) return;
    if (known === undefined && !said.listed) return;
    if (said.listed) this.#known.set(said.id, said);
    else this.#known.delete(said.id);
    for (const { ready, tell } of this.readers) if (ready) tell(said);
  }

  /** All of the list was told: what was on it before, and was not told, has left it. */
  whole() {
    for (const id of this.#before) {
      const left = this.#known.get(id);
      if (left !== undefined) this.take({ ...left, listed: false });
    }
    this.#before.clear();
    this.#whole = true;
    for (const { ready, options } of this.readers) if (ready) this.#call(options.onWhole);
  }

  /**
   * Who comes late is told what is known.
   *
   * @param {Reader} reader
   */
  join(reader) {
    this.readers.add(reader);
    queueMicrotask(() => {
      if (!this.readers.has(reader)) return;
      reader.ready = true;
      for (const one of this.#known.values()) reader.tell(one);
      if (this.#whole) this.#call(reader.options.onWhole);
    });
  }

  /** @param {import("../windlass.js").WindlassError} error */
  fail(error) {
    for (const { options } of this.readers) {
      this.#call(options.onError ?? ((told) => this.log.error(told)), error);
    }
  }

  /**
   * @template {any[]} A
   * @param {((...values: A) => unknown) | undefined} call
   * @param {A} values
   */
  #call(call, ...values) {
    guarded(this.log, call)(...values);
  }
}
