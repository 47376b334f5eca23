/** Known snapshots of a list of jobs, and its readers. */

/** @import { LiveListOptions, Log, Snapshot } from "../../windlass.js" */

import { safeCallback } from "./safe-callback.js";

/**
 * @typedef {object} Reader
 * @property {(snapshot: Snapshot) => void} notify
 * @property {LiveListOptions} options
 * @property {boolean} ready whether it has received the snapshots known when it joined
 */

export class ListWatch {
  /** @type {Set<Reader>} */
  readers = new Set();
  /** @type {Map<string, Snapshot>} */
  #known = new Map();
  /** Known jobs that the current connection has not sent yet. @type {Set<string>} */
  #unconfirmed = new Set();
  #loaded = false;

  /**
   * @param {string} query the list's filter as a query string
   * @param {Log} log
   */
  constructor(query, log) {
    this.query = query;
    this.log = log;
  }

  /** Called when a connection starts, which sends the whole list. */
  start() {
    this.#unconfirmed = new Set(this.#known.keys());
  }

  /**
   * Pass a snapshot to the readers unless it is known or older.
   *
   * @param {Snapshot} snapshot
   */
  add(snapshot) {
    const known = this.#known.get(snapshot.id);
    this.#unconfirmed.delete(snapshot.id);
    if (known !== undefined && snapshot.listed && snapshot.seq <= known.seq) return;
    if (known === undefined && !snapshot.listed) return;
    if (snapshot.listed) this.#known.set(snapshot.id, snapshot);
    else this.#known.delete(snapshot.id);
    for (const { ready, notify } of this.readers) if (ready) notify(snapshot);
  }

  /** The whole list was sent: known jobs that were not in it have left the list. */
  loaded() {
    for (const id of this.#unconfirmed) {
      const last = this.#known.get(id);
      if (last !== undefined) this.add({ ...last, listed: false });
    }
    this.#unconfirmed.clear();
    this.#loaded = true;
    for (const { ready, options } of this.readers) if (ready) this.#call(options.onLoaded);
  }

  /**
   * Add a reader and pass the known snapshots to it.
   *
   * @param {Reader} reader
   */
  join(reader) {
    this.readers.add(reader);
    queueMicrotask(() => {
      if (!this.readers.has(reader)) return;
      reader.ready = true;
      for (const snapshot of this.#known.values()) reader.notify(snapshot);
      if (this.#loaded) this.#call(reader.options.onLoaded);
    });
  }

  /** @param {import("../../windlass.js").WindlassError} error */
  fail(error) {
    for (const { options } of this.readers) {
      this.#call(options.onError ?? ((problem) => this.log.error(problem)), error);
    }
  }

  /**
   * @template {any[]} A
   * @param {((...values: A) => unknown) | undefined} call
   * @param {A} values
   */
  #call(call, ...values) {
    safeCallback(this.log, call)(...values);
  }
}
