/** Polling of API paths, shared by all tabs. */

/** @import { ProblemInit, WindlassError } from "../client/windlass.js" */
/** @import { SubscriptionUpdate } from "./messages.js" */

import { errorPayload } from "./error-payload.js";

const MAX_IDLE = 50; // answers cached without subscribers
const MIN_PERIOD = 0.2; // seconds

/**
 * @typedef {object} Clock
 * @property {() => number} now
 * @property {(call: () => void, ms: number) => unknown} setTimeout
 */

/**
 * @typedef {object} Subscriber
 * @property {number} seconds
 * @property {() => boolean} visible
 * @property {(update: SubscriptionUpdate) => void} notify
 */

/**
 * One polled path. Waits for its period and the response. Guarantees one request at a time, a
 * period (or Retry-After) after the previous one, while a visible tab reads it. Stops without
 * subscribers and after a permanent error. A crash leaves no state.
 */
class Poll {
  /** @type {Set<Subscriber>} */
  subscribers = new Set();
  /** @type {unknown} */
  answer = null;
  /** @type {ProblemInit | null} */
  problem = null;
  hasAnswer = false;
  #requestedAt = -Infinity;
  #busy = false;
  #again = false;
  #failed = false;
  /** Number of the newest timer; older ones do nothing. */
  #timer = 0;

  /**
   * @param {string} path
   * @param {Poller} poller
   */
  constructor(path, poller) {
    this.path = path;
    this.poller = poller;
  }

  /** Send the request if it is due, else set a timer. */
  schedule() {
    const visible = [...this.subscribers].filter((subscriber) => subscriber.visible());
    if (visible.length === 0 || this.#busy || this.#failed || this.poller.stopped) return;
    const shortest = Math.min(...visible.map(({ seconds }) => seconds));
    const period = 1000 * Math.max(MIN_PERIOD, shortest, this.problem?.retryAfter ?? 0);
    const left = this.#requestedAt + period - this.poller.clock.now();
    const timer = (this.#timer += 1);
    if (left <= 0) void this.#request();
    else this.poller.clock.setTimeout(() => timer === this.#timer && this.schedule(), left);
  }

  /** Send a request now. A pending response may be outdated, so it is followed by another. */
  refresh() {
    this.#failed = false;
    this.#again = this.#busy;
    this.#requestedAt = -Infinity;
    this.schedule();
  }

  async #request() {
    this.#busy = true;
    this.#requestedAt = this.poller.clock.now();
    /** @type {WindlassError | null} */
    let error = null;
    try {
      this.answer = await this.poller.client.request("GET", this.path);
      this.hasAnswer = true;
    } catch (thrown) {
      error = /** @type {WindlassError} */ (thrown);
    }
    this.problem = error && errorPayload(error);
    this.#busy = false;
    this.#failed = error?.permanent === true && error.status !== 401;
    if (this.#again) this.refresh();
    else for (const { notify } of this.subscribers) this.notify(notify);
    this.poller.onResult(error);
    this.schedule();
  }

  /** @param {(update: SubscriptionUpdate) => void} notify */
  notify(notify) {
    notify({ answer: this.answer, problem: this.problem });
  }
}

export class Poller {
  stopped = false;
  /** @type {Map<string, Poll>} */
  #polls = new Map();

  /**
   * @param {import("../client/windlass.js").Windlass} client
   * @param {Clock} clock
   * @param {(error: WindlassError | null) => void} onResult called after each request
   */
  constructor(client, clock, onResult) {
    this.client = client;
    this.clock = clock;
    this.onResult = onResult;
  }

  /**
   * @param {{ path: string, seconds: number }} request
   * @param {() => boolean} visible
   * @param {(update: SubscriptionUpdate) => void} notify
   * @returns {() => void} unsubscribes
   */
  subscribe({ path, seconds }, visible, notify) {
    const poll = this.#polls.get(path) ?? new Poll(path, this);
    this.#polls.delete(path); // keeps the newest last
    this.#polls.set(path, poll);
    const subscriber = { seconds, visible, notify };
    poll.subscribers.add(subscriber);
    if (poll.hasAnswer || poll.problem !== null) poll.notify(notify);
    poll.schedule();
    this.#evict();
    return () => void poll.subscribers.delete(subscriber);
  }

  /** @param {string} path */
  refresh(path) {
    for (const poll of this.#polls.values()) {
      if (poll.path === path || poll.path.startsWith(`${path}?`)) poll.refresh();
    }
  }

  /** Called when the visibility of a tab changes. */
  schedule() {
    for (const poll of this.#polls.values()) poll.schedule();
  }

  /** Stop all requests. */
  stop() {
    this.stopped = true;
  }

  /** Poll everything now. */
  restart() {
    this.stopped = false;
    for (const poll of this.#polls.values()) poll.refresh();
  }

  #evict() {
    let idle = [...this.#polls.values()].filter(({ subscribers }) => subscribers.size === 0);
    idle = idle.slice(0, Math.max(0, idle.length - MAX_IDLE));
    for (const { path } of idle) this.#polls.delete(path);
  }
}
