/**
 * Event feeds of jobs: all subscribers of a job share one feed.
 *
 * Each subscriber has its own cursor in the feed's buffer. A subscriber that is behind the buffer
 * reads pages of JSON until it has caught up. A cursor that the server rejects fails only its
 * subscriber: the others join a new feed with their own cursors.
 */

/** @import { ConnectionState, JobEvent, Log } from "../../windlass.js" */
/** @import { Context, MessageResult } from "./reconnecting-stream.js" */

import { WindlassError } from "../errors.js";
import { eventFromJson, eventFromMessage, seqOf } from "./job-event.js";
import { EventBuffer, isNext } from "./event-buffer.js";
import { keepOpen } from "./reconnecting-stream.js";
import { Wakeup } from "../wakeup.js";

const INVALID_CURSOR = 422;

/**
 * @typedef {object} ReadOptions
 * @property {string | number} [after]
 * @property {AbortSignal} [signal]
 * @property {(state: ConnectionState) => void} [onConnection]
 */

/**
 * Passes events to a feed until the last event of its job, or until the signal aborts.
 *
 * @typedef {(feed: Feed, signal: AbortSignal) => Promise<void>} Source
 */

/** Events of one job, and its subscribers. */
export class Feed {
  subscribers = 0;
  ended = false;
  /** @type {unknown} */
  error = null;
  /** @type {ConnectionState | null} */
  state = null;
  /** @type {Set<(state: ConnectionState) => void>} */
  connectionListeners = new Set();
  #update = new Wakeup();
  #closing = new AbortController();

  /**
   * @param {string} id
   * @param {EventBuffer} buffer
   */
  constructor(id, buffer) {
    this.id = id;
    this.buffer = buffer;
  }

  /**
   * Run until the feed ends or fails.
   *
   * @param {Source} source
   */
  async run(source) {
    try {
      await source(this, this.#closing.signal);
      this.ended = true;
    } catch (error) {
      this.error = error;
    }
    this.#update.notify();
  }

  /**
   * @param {JobEvent} event
   * @param {Log} log
   * @returns {MessageResult}
   */
  add(event, log) {
    if (!isNext(event, this.buffer.last, log)) return "ignored";
    this.buffer.add(event);
    this.#update.notify();
    return event.final ? "ended" : "accepted";
  }

  /** @param {ConnectionState} state */
  setConnection(state) {
    this.state = state;
    for (const listener of this.connectionListeners) listener(state);
  }

  /**
   * Resolve at the next event, end or error.
   *
   * @param {AbortSignal} signal
   */
  nextUpdate(signal) {
    return this.#update.wait(signal);
  }

  /**
   * Return whether the server rejected the cursor of another subscriber.
   *
   * @param {number} seen
   */
  failedForOtherSubscriber(seen) {
    const invalid = this.error instanceof WindlassError && this.error.status === INVALID_CURSOR;
    return invalid && seen !== this.buffer.last;
  }

  /** @param {((state: ConnectionState) => void) | undefined} onConnection */
  subscribe(onConnection) {
    this.subscribers += 1;
    if (onConnection === undefined) return;
    this.connectionListeners.add(onConnection);
    if (this.state !== null) onConnection(this.state);
  }

  /** @param {((state: ConnectionState) => void) | undefined} onConnection */
  unsubscribe(onConnection) {
    if (onConnection !== undefined) this.connectionListeners.delete(onConnection);
    this.subscribers -= 1;
    if (this.subscribers === 0) this.#closing.abort();
  }
}

/**
 * Return a source with its own connection for each feed.
 *
 * @param {Context} context
 * @returns {Source}
 */
export const ownConnection = (context) => (feed, signal) => {
  /** @type {import("./reconnecting-stream.js").StreamHandler} */
  const handler = {
    target: () => [eventsPath(feed.id), { lastEventId: feed.buffer.cursor }],
    onMessage: (message) => feed.add(eventFromMessage(feed.id, message), context.log),
    onConnection: (state) => feed.setConnection(state),
  };
  return keepOpen(context, handler, signal);
};

export class Feeds {
  /** @type {Map<string, Feed>} */
  #feeds = new Map();

  /**
   * @param {Context} context
   * @param {number} keep buffered events of each job
   * @param {Source} [source]
   */
  constructor(context, keep, source = ownConnection(context)) {
    this.context = context;
    this.keep = keep;
    this.source = source;
  }

  /**
   * Yield every event after `after`, once and in order, until the last.
   *
   * @param {string} id
   * @param {ReadOptions} [options]
   * @returns {AsyncGenerator<JobEvent, void, void>}
   */
  async *events(id, { after = 0, signal = new AbortController().signal, onConnection } = {}) {
    let seen = seqOf(after);
    signal.throwIfAborted();
    let feed = this.#join(id, after, onConnection);
    try {
      for (;;) {
        const events = feed.buffer.after(seen) ?? (await this.#page(feed, seen, signal));
        for (const event of events) {
          if (event.seq <= seen) continue;
          seen = event.seq;
          yield event;
          signal.throwIfAborted();
          if (event.final) return;
        }
        if (events.length > 0) continue;
        if (feed.failedForOtherSubscriber(seen)) {
          this.#leave(feed, onConnection);
          feed = this.#join(id, seen, onConnection);
          continue;
        }
        if (feed.error !== null) throw feed.error;
        if (feed.ended) return;
        await feed.nextUpdate(signal);
      }
    } finally {
      this.#leave(feed, onConnection);
    }
  }

  /**
   * @param {string} id
   * @param {string | number} after
   * @param {((state: ConnectionState) => void) | undefined} onConnection
   */
  #join(id, after, onConnection) {
    let feed = this.#feeds.get(id);
    if (feed === undefined || feed.error !== null) {
      feed = new Feed(id, new EventBuffer(after, this.keep));
      this.#feeds.set(id, feed);
      void feed.run(this.source);
    }
    feed.subscribe(onConnection);
    return feed;
  }

  /**
   * @param {Feed} feed
   * @param {((state: ConnectionState) => void) | undefined} onConnection
   */
  #leave(feed, onConnection) {
    feed.unsubscribe(onConnection);
    if (feed.subscribers === 0 && this.#feeds.get(feed.id) === feed) this.#feeds.delete(feed.id);
  }

  /**
   * @param {Feed} feed
   * @param {number} seen
   * @param {AbortSignal} signal
   */
  async #page({ id, buffer }, seen, signal) {
    const page = await this.context.http.request("GET", eventsPath(id), {
      query: { lastEventId: seen, limit: 500 },
      signal,
    });
    if (page.events.length > 0 || !buffer.started) return page.events.map(eventFromJson);
    const detail = `events of job ${id} after ${seen} are missing on the server`;
    throw new WindlassError({ detail, code: "gap", permanent: true });
  }
}

const eventsPath = (/** @type {string} */ id) => `/api/jobs/${encodeURIComponent(id)}/events`;
