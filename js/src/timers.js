/** Sleep, abort, notification, watchdog and backoff. Tests pass their own timers. */

/** @import { Timers } from "../windlass.js" */

/** @type {Timers} */
export const systemTimers = {
  now: () => performance.now(),
  setTimeout: (call, ms) => globalThis.setTimeout(call, ms),
  clearTimeout: (timer) => globalThis.clearTimeout(/** @type {number} */ (timer)),
};

/**
 * @param {Timers} timers
 * @param {number} ms
 * @param {AbortSignal} signal
 * @returns {Promise<void>}
 */
export function sleep(timers, ms, signal) {
  return new Promise((resolve, reject) => {
    if (signal.aborted) {
      reject(signal.reason);
      return;
    }
    const stop = () => {
      timers.clearTimeout(timer);
      reject(signal.reason);
    };
    const timer = timers.setTimeout(() => {
      signal.removeEventListener("abort", stop);
      resolve();
    }, ms);
    signal.addEventListener("abort", stop, { once: true });
  });
}

/**
 * Resolve in a later task of the event loop. A MessageChannel is used because browsers throttle
 * timers of hidden pages.
 *
 * @returns {Promise<void>}
 */
export function yieldToEventLoop() {
  return new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = () => {
      port1.close();
      resolve();
    };
    port2.postMessage(null);
  });
}

/**
 * Return a controller that aborts with this signal. `release` removes the link.
 *
 * @param {AbortSignal} [signal]
 */
export function linkedController(signal) {
  const controller = new AbortController();
  const abort = () => controller.abort(signal?.reason);
  if (signal?.aborted) abort();
  else signal?.addEventListener("abort", abort, { once: true });
  return { controller, release: () => signal?.removeEventListener("abort", abort) };
}

/** Wakes all current waiters. */
export class Notifier {
  /** @type {Set<() => void>} */
  #waiting = new Set();

  notify() {
    for (const wake of this.#waiting) wake();
    this.#waiting.clear();
  }

  /**
   * Resolve at the next `notify`.
   *
   * @param {AbortSignal} signal
   * @returns {Promise<void>}
   */
  wait(signal) {
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
}

/** Calls `expired` once when `reset` was not called for `ms`. */
export class Watchdog {
  /**
   * @param {Timers} timers
   * @param {number} ms
   * @param {() => void} expired
   */
  constructor(timers, ms, expired) {
    this.timers = timers;
    this.ms = ms;
    this.expired = expired;
    this.lastReset = timers.now();
    this.timer = timers.setTimeout(() => this.#check(), ms);
  }

  reset() {
    this.lastReset = this.timers.now();
  }

  /** Resets are frequent, so the timer is not restarted by each: it checks the last one. */
  #check() {
    const left = this.lastReset + this.ms - this.timers.now();
    if (left <= 0) this.expired();
    else this.timer = this.timers.setTimeout(() => this.#check(), left);
  }

  stop() {
    this.timers.clearTimeout(this.timer);
  }
}

/** Exponential backoff: 1, 2, 4, 8, 16 seconds by default, then no more attempts. */
export class Backoff {
  used = 0;

  /** @param {{ attempts?: number, first?: number, cap?: number }} [policy] milliseconds */
  constructor({ attempts = 5, first = 1000, cap = 30_000 } = {}) {
    this.attempts = attempts;
    this.first = first;
    this.cap = cap;
  }

  /** Return the milliseconds before the next attempt, or null if none is left. */
  next() {
    if (this.used >= this.attempts) return null;
    const delay = Math.min(this.first * 2 ** this.used, this.cap);
    this.used += 1;
    return delay;
  }

  reset() {
    this.used = 0;
  }
}
