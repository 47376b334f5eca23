/**
 * Following jobs: each comes once, however many listen to it on this page, by a connection of its
 * own or with others.
 *
 * Each who listens has a cursor of their own on what the connection brought. Who comes late, or is
 * slow, and asks for more than is kept, reads pages of JSON until they have caught up. Who gave a
 * cursor that the server does not know is told so, alone: the others go on from their own.
 */

/** @import { ConnectionState, JobEvent, Log } from "../windlass.js" */
/** @import { Context, Verdict } from "./stream.js" */

import { WindlassError } from "./errors.js";
import { eventOf, eventOfView, seqOf } from "./event.js";
import { JobLog, isNext } from "./job-log.js";
import { keepOpen } from "./stream.js";
import { Bell } from "./waiting.js";

const WRONG_CURSOR = 422;

/**
 * @typedef {object} Listening
 * @property {string | number} [after]
 * @property {AbortSignal} [signal]
 * @property {(state: ConnectionState) => void} [onConnection]
 */

/**
 * Feeds what happens to a feed's job, until its last event; its signal ends it before.
 *
 * @typedef {(feed: Feed, signal: AbortSignal) => Promise<void>} Bring
 */

/** What comes of one job, and who waits for it. */
export class Feed {
  readers = 0;
  ended = false;
  /** @type {unknown} */
  error = null;
  /** @type {ConnectionState | null} */
  state = null;
  /** @type {Set<(state: ConnectionState) => void>} */
  watchers = new Set();
  #news = new Bell();
  #closing = new AbortController();

  /**
   * @param {string} id
   * @param {JobLog} log
   */
  constructor(id, log) {
    this.id = id;
    this.log = log;
  }

  /**
   * Returns when it has ended, for whatever reason.
   *
   * @param {Bring} bring
   */
  async run(bring) {
    try {
      await bring(this, this.#closing.signal);
      this.ended = true;
    } catch (error) {
      this.error = error;
    }
    this.#news.ring();
  }

  /**
   * @param {JobEvent} event
   * @param {Log} log
   * @returns {Verdict}
   */
  take(event, log) {
    if (!isNext(event, this.log.last, log)) return "ignored";
    this.log.add(event);
    this.#news.ring();
    return event.final ? "ended" : "taken";
  }

  /** @param {ConnectionState} state */
  changed(state) {
    this.state = state;
    for (const watcher of this.watchers) watcher(state);
  }

  /**
   * Returns when something has changed.
   *
   * @param {AbortSignal} signal
   */
  news(signal) {
    return this.#news.heard(signal);
  }

  /**
   * Whether it failed by a cursor that the server does not know, and that is not this one's.
   *
   * @param {number} seen
   */
  failedByAnother(seen) {
    const wrong = this.error instanceof WindlassError && this.error.status === WRONG_CURSOR;
    return wrong && seen !== this.log.last;
  }

  /** @param {((state: ConnectionState) => void) | undefined} watcher */
  enter(watcher) {
    this.readers += 1;
    if (watcher === undefined) return;
    this.watchers.add(watcher);
    if (this.state !== null) watcher(this.state);
  }

  /** @param {((state: ConnectionState) => void) | undefined} watcher */
  leave(watcher) {
    if (watcher !== undefined) this.watchers.delete(watcher);
    this.readers -= 1;
    if (this.readers === 0) this.#closing.abort();
  }
}

/**
 * On a connection of its own.
 *
 * @param {Context} context
 * @returns {Bring}
 */
export const alone = (context) => (feed, signal) => {
  /** @type {import("./stream.js").Purpose} */
  const purpose = {
    where: () => [path(feed.id), { lastEventId: feed.log.cursor }],
    take: (message) => feed.take(eventOf(feed.id, message), context.log),
    changed: (state) => feed.changed(state),
  };
  return keepOpen(context, purpose, signal);
};

export class Feeds {
  /** @type {Map<string, Feed>} */
  #feeds = new Map();

  /**
   * @param {Context} context
   * @param {number} keep events of each job that late listeners find here
   * @param {Bring} [bring]
   */
  constructor(context, keep, bring = alone(context)) {
    this.context = context;
    this.keep = keep;
    this.bring = bring;
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
    let feed = this.#join(id, after, onConnection);
    try {
      for (;;) {
        const events = feed.log.after(seen) ?? (await this.#page(feed, seen, signal));
        for (const event of events) {
          if (event.seq <= seen) continue;
          seen = event.seq;
          yield event;
          signal.throwIfAborted();
          if (event.final) return;
        }
        if (events.length > 0) continue;
        if (feed.failedByAnother(seen)) {
          this.#leave(feed, onConnection);
          feed = this.#join(id, seen, onConnection);
          continue;
        }
        if (feed.error !== null) throw feed.error;
        if (feed.ended) return;
        await feed.news(signal);
      }
    } finally {
      this.#leave(feed, onConnection);
    }
  }

  /**
   * @param {string} id
   * @param {string | number} after
   * @param {((state: ConnectionState) => void) | undefined} watcher
   */
  #join(id, after, watcher) {
    let feed = this.#feeds.get(id);
    if (feed === undefined || feed.error !== null) {
      feed = new Feed(id, new JobLog(after, this.keep));
      this.#feeds.set(id, feed);
      void feed.run(this.bring);
    }
    feed.enter(watcher);
    return feed;
  }

  /**
   * @param {Feed} feed
   * @param {((state: ConnectionState) => void) | undefined} watcher
   */
  #leave(feed, watcher) {
    feed.leave(watcher);
    if (feed.readers === 0 && this.#feeds.get(feed.id) === feed) this.#feeds.delete(feed.id);
  }

  /**
   * @param {Feed} feed
   * @param {number} seen
   * @param {AbortSignal} signal
   */
  async #page({ id, log }, seen, signal) {
    const page = await this.context.http.request("GET", path(id), {
      query: { lastEventId: seen, limit: 500 },
      signal,
    });
    if (page.events.length > 0 || !log.begun) return page.events.map(eventOfView);
    const detail = `job ${id} has no events after ${seen}, though later ones were told`;
    throw new WindlassError({ detail, code: "gap", permanent: true });
  }
}

const path = (/** @type {string} */ id) => `/api/jobs/${encodeURIComponent(id)}/events`;
