/** What is asked again and again, once for all tabs: the newest answer is for everybody. */

/** @import { Told, WindlassError } from "../client/windlass.js" */
/** @import { News } from "./messages.js" */

import { told } from "./told.js";

const REMEMBERED = 50; // answers that nobody waits for now, but perhaps soon again
const SHORTEST = 0.2; // seconds

/**
 * @typedef {object} Clock
 * @property {() => number} now
 * @property {(call: () => void, ms: number) => unknown} setTimeout
 */

/**
 * @typedef {object} Reader
 * @property {number} seconds
 * @property {() => boolean} visible
 * @property {(news: News) => void} tell
 */

/**
 * One address. Waits for: its time, and the answer. Guarantees: one request at a time, a period
 * after the one before, or as long as the server asks to be left alone, while a visible tab wants
 * it. Stops: with the last who wants it, and when
 * to ask again is pointless. A crash leaves nothing.
 */
class Poll {
  /** @type {Set<Reader>} */
  readers = new Set();
  /** @type {unknown} */
  answer = null;
  /** @type {Told | null} */
  problem = null;
  known = false;
  #asked = -Infinity;
  #busy = false;
  #again = false;
  #over = false;
  /** Counts the timers: only the newest counts. */
  #timer = 0;

  /**
   * @param {string} path
   * @param {Polls} polls
   */
  constructor(path, polls) {
    this.path = path;
    this.polls = polls;
  }

  /** Asks when it is time, and not before. */
  look() {
    const wanted = [...this.readers].filter((reader) => reader.visible());
    if (wanted.length === 0 || this.#busy || this.#over || this.polls.stopped) return;
    const wish = Math.min(...wanted.map(({ seconds }) => seconds));
    const period = 1000 * Math.max(SHORTEST, wish, this.problem?.retryAfter ?? 0);
    const left = this.#asked + period - this.polls.clock.now();
    const timer = (this.#timer += 1);
    if (left <= 0) void this.#ask();
    else this.polls.clock.setTimeout(() => timer === this.#timer && this.look(), left);
  }

  /** Asks now; an answer that is on its way may be of before. */
  refresh() {
    this.#over = false;
    this.#again = this.#busy;
    this.#asked = -Infinity;
    this.look();
  }

  async #ask() {
    this.#busy = true;
    this.#asked = this.polls.clock.now();
    /** @type {WindlassError | null} */
    let error = null;
    try {
      this.answer = await this.polls.client.request("GET", this.path);
      this.known = true;
    } catch (thrown) {
      error = /** @type {WindlassError} */ (thrown);
    }
    this.problem = error && told(error);
    this.#busy = false;
    this.#over = error?.permanent === true && error.status !== 401;
    if (this.#again) this.refresh();
    else for (const { tell } of this.readers) this.tell(tell);
    this.polls.told(error);
    this.look();
  }

  /** @param {(news: News) => void} tell */
  tell(tell) {
    tell({ answer: this.answer, problem: this.problem });
  }
}

export class Polls {
  stopped = false;
  /** @type {Map<string, Poll>} */
  #polls = new Map();

  /**
   * @param {import("../client/windlass.js").Windlass} client
   * @param {Clock} clock
   * @param {(error: WindlassError | null) => void} told how each request went
   */
  constructor(client, clock, told) {
    this.client = client;
    this.clock = clock;
    this.told = told;
  }

  /**
   * @param {{ path: string, seconds: number }} wish
   * @param {() => boolean} visible
   * @param {(news: News) => void} tell
   * @returns {() => void} ends it
   */
  join({ path, seconds }, visible, tell) {
    const poll = this.#polls.get(path) ?? new Poll(path, this);
    this.#polls.delete(path); // so that the newest are last
    this.#polls.set(path, poll);
    const reader = { seconds, visible, tell };
    poll.readers.add(reader);
    if (poll.known || poll.problem !== null) poll.tell(tell);
    poll.look();
    this.#forget();
    return () => void poll.readers.delete(reader);
  }

  /** @param {string} path */
  refresh(path) {
    for (const poll of this.#polls.values()) {
      if (poll.path === path || poll.path.startsWith(`${path}?`)) poll.refresh();
    }
  }

  /** Who looks has changed. */
  look() {
    for (const poll of this.#polls.values()) poll.look();
  }

  /** Nothing is asked any more. */
  stop() {
    this.stopped = true;
  }

  /** Everything is asked now. */
  restart() {
    this.stopped = false;
    for (const poll of this.#polls.values()) poll.refresh();
  }

  #forget() {
    let idle = [...this.#polls.values()].filter(({ readers }) => readers.size === 0);
    idle = idle.slice(0, Math.max(0, idle.length - REMEMBERED));
    for (const { path } of idle) this.#polls.delete(path);
  }
}
