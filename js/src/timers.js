/** System timers, sleep and watchdog. Tests pass their own timers. */

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
