/** The last snapshots of a list of jobs, shared by all subscribers of the list. */

/** @import { LiveListOptions, Log, Snapshot } from "../../windlass.js" */

import { safeCallback } from "./safe-callback.js";

/**
 * @typedef {object} Subscriber
 * @property {(snapshot: Snapshot) => void} notify
 * @property {LiveListOptions} options
 * @property {boolean} ready whether it has received the snapshots known when it joined
 */

export class ListWatch {
  /** @type {Set<Subscriber>} */
  subscribers = new Set();
  /** Last snapshot of each job in the list. @type {Map<string, Snapshot>} */
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

  /** Prepare for a new connection, which sends the whole list again. */
  start() {
    this.#unconfirmed = new Set(this.#known.keys());
  }

  /**
   * Store a snapshot, or remove a job that has left the list (`listed` is false). Notify the
   * subscribers, unless the snapshot is known or older.
   *
   * @param {Snapshot} snapshot
   */
  apply(snapshot) {
    const known = this.#known.get(snapshot.id);
    this.#unconfirmed.delete(snapshot.id);
    if (known !== undefined && snapshot.listed && snapshot.seq <= known.seq) return;
    if (known === undefined && !snapshot.listed) return;
    if (snapshot.listed) this.#known.set(snapshot.id, snapshot);
    else this.#known.delete(snapshot.id);
    for (const { ready, notify } of this.subscribers) if (ready) notify(snapshot);
  }

  /** Handle the end of the initial list: known jobs that it did not contain have left the list. */
  loaded() {
    for (const id of this.#unconfirmed) {
      const last = this.#known.get(id);
      if (last !== undefined) this.apply({ ...last, listed: false });
    }
    this.#unconfirmed.clear();
    this.#loaded = true;
    for (const { ready, options } of this.subscribers) if (ready) this.#call(options.onLoaded);
  }

  /**
   * Add a subscriber and pass the known snapshots to it.
   *
   * @param {Subscriber} subscriber
   */
  subscribe(subscriber) {
    this.subscribers.add(subscriber);
    queueMicrotask(() => {
      if (!this.subscribers.has(subscriber)) return;
      subscriber.ready = true;
      for (const snapshot of this.#known.values()) subscriber.notify(snapshot);
      if (this.#loaded) this.#call(subscriber.options.onLoaded);
    });
  }

  /** @param {import("../../windlass.js").WindlassError} error */
  fail(error) {
    for (const { options } of this.subscribers) {
      this.#call(options.onError ?? ((problem) => this.log.error(problem)), error);
    }
  }

  /**
   * @template {any[]} A
   * @param {((...values: A) => unknown) | undefined} callback
   * @param {A} values
   */
  #call(callback, ...values) {
    safeCallback(this.log, callback)(...values);
  }
}
