/**
 * Following jobs: one connection for each, however many listen to it on this page.
 *
 * Each who listens has a cursor of their own on what the connection brought. Who comes late, or is
 * slow, and asks for more than is kept, reads pages of JSON until they have caught up.
 */

/** @import { ConnectionState, JobEvent, SseMessage } from "../windlass.js" */
/** @import { Context, Verdict } from "./stream.js" */

import { WindlassError } from "./errors.js";
import { eventOf, eventOfView, seqOf } from "./event.js";
import { JobLog, isNext } from "./job-log.js";
import { keepOpen } from "./stream.js";

/**
 * @typedef {object} Listening
 * @property {string | number} [after]
 * @property {AbortSignal} [signal]
 * @property {(state: ConnectionState) => void} [onConnection]
 */

/** The connection of one job, and who waits for it. */
class Feed {
  readers = 0;
  ended = false;
  /** @type {unknown} */
  error = null;
  /** @type {ConnectionState | null} */
  state = null;
  /** @type {Set<(state: ConnectionState) => void>} */
  watchers = new Set();
  /** @type {Set<() => void>} */
  #waiting = new Set();
  #closing = new AbortController();

  /**
   * @param {Context} context
   * @param {string} id
   * @param {JobLog} log
   */
  constructor(context, id, log) {
    this.context = context;
    this.id = id;
    this.log = log;
  }

  /** Returns when it has ended, for whatever reason. */
  async run() {
    /** @type {import("./stream.js").Purpose} */
    const purpose = {
      where: () => [path(this.id), { lastEventId: this.log.cursor }],
      take: (message) => this.#take(message),
      changed: (state) => this.#changed(state),
    };
    try {
      await keepOpen(this.context, purpose, this.#closing.signal);
      this.ended = true;
    } catch (error) {
      this.error = error;
    }
    this.#wake();
  }

  /**
   * @param {SseMessage} message
   * @returns {Verdict}
   */
  #take(message) {
    const event = eventOf(this.id, message);
    if (!isNext(event, this.log.last, this.context.log)) return "ignored";
    this.log.add(event);
    this.#wake();
    return event.final ? "ended" : "taken";
  }

  /** @param {ConnectionState} state */
  #changed(state) {
    this.state = state;
    for (const watcher of this.watchers) watcher(state);
  }

  #wake() {
    for (const wake of this.#waiting) wake();
    this.#waiting.clear();
  }

  /**
   * Returns when something has changed.
   *
   * @param {AbortSignal} signal
   * @returns {Promise<void>}
   */
  news(signal) {
    return new Promise((resolve, reject) => {
      const wake = () => {
        signal.removeEventListener("abort", stop);
        resolve();
      };
      const stop = () => {
        this.#waiting.delete(wake);
        reject(signal.reason);
      };
      this.#waiting.add(wake);
      signal.addEventListener("abort", stop, { once: true });
      if (signal.aborted) stop();
    });
  }

  close() {
    this.#closing.abort();
  }
}

export class Feeds {
  /** @type {Map<string, Feed>} */
  #feeds = new Map();

  /**
   * @param {Context} context
   * @param {number} keep events of each job that late listeners find here
   */
  constructor(context, keep) {
    this.context = context;
    this.keep = keep;
  }

  /**
   * Every event beyond `after`, each once and in order, until the last.
   *
   * @param {string} id
   * @param {Listening} [listening]
   * @returns {AsyncGenerator<JobEvent, void, void>}
   */
  async *events(id, { after = 0, signal = new AbortController().signal, onConnection } = {}) {
    let seen = seqOf(after);
    signal.throwIfAborted();
    const feed = this.#join(id, after);
    if (onConnection !== undefined) {
      feed.watchers.add(onConnection);
      if (feed.state !== null) onConnection(feed.state);
    }
    try {
      for (;;) {
        const events = feed.log.after(seen) ?? (await this.#page(id, seen, signal));
        for (const event of events) {
          if (event.seq <= seen) continue;
          seen = event.seq;
          yield event;
          signal.throwIfAborted();
          if (event.final) return;
        }
        if (events.length > 0) continue;
        if (feed.error !== null) throw feed.error;
        if (feed.ended) return;
        await feed.news(signal);
      }
    } finally {
      if (onConnection !== undefined) feed.watchers.delete(onConnection);
      this.#leave(feed);
    }
  }

  /**
   * @param {string} id
   * @param {string | number} after
   */
  #join(id, after) {
    let feed = this.#feeds.get(id);
    if (feed === undefined || feed.error !== null) {
      feed = new Feed(this.context, id, new JobLog(after, this.keep));
      this.#feeds.set(id, feed);
      void feed.run();
    }
    feed.readers += 1;
    return feed;
  }

  /** @param {Feed} feed */
  #leave(feed) {
    feed.readers -= 1;
    if (feed.readers > 0) return;
    feed.close();
    if (this.#feeds.get(feed.id) === feed) this.#feeds.delete(feed.id);
  }

  /**
   * @param {string} id
   * @param {number} seen
   * @param {AbortSignal} signal
   */
  async #page(id, seen, signal) {
    const page = await this.context.http.request("GET", path(id), {
      query: { lastEventId: seen, limit: 100 },
      signal,
    });
    if (page.events.length > 0) return page.events.map(eventOfView);
    const detail = `job ${id} has no events after ${seen}, though later ones were told`;
    throw new WindlassError({ detail, code: "gap", permanent: true });
  }
}

const path = (/** @type {string} */ id) => `/api/jobs/${encodeURIComponent(id)}/events`;
