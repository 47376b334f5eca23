/** Time and patience: sleep, abort, come back later. Tests bring timers of their own. */

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
 * Returns when everything else had its turn. (Timers would do it, too, but browsers slow them down
 * where nobody looks.)
 *
 * @returns {Promise<void>}
 */
export function turn() {
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
 * A controller that is aborted with this signal; `release` unties them.
 *
 * @param {AbortSignal} [signal]
 */
export function tied(signal) {
  const controller = new AbortController();
  const abort = () => controller.abort(signal?.reason);
  if (signal?.aborted) abort();
  else signal?.addEventListener("abort", abort, { once: true });
  return { controller, release: () => signal?.removeEventListener("abort", abort) };
}

/** Rings for all who wait for it. */
export class Bell {
  /** @type {Set<() => void>} */
  #waiting = new Set();

  ring() {
    for (const wake of this.#waiting) wake();
    this.#waiting.clear();
  }

  /**
   * Returns when it rings.
   *
   * @param {AbortSignal} signal
   * @returns {Promise<void>}
   */
  heard(signal) {
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

/** Barks once, when it was not patted for so long. */
export class Watchdog {
  /**
   * @param {Timers} timers
   * @param {number} ms
   * @param {() => void} bark
   */
  constructor(timers, ms, bark) {
    this.timers = timers;
    this.ms = ms;
    this.bark = bark;
    this.patted = timers.now();
    this.timer = timers.setTimeout(() => this.#look(), ms);
  }

  pat() {
    this.patted = this.timers.now();
  }

  /** Pats are many and timers dear: it looks at the clock when the oldest pat would be too old. */
  #look() {
    const left = this.patted + this.ms - this.timers.now();
    if (left <= 0) this.bark();
    else this.timer = this.timers.setTimeout(() => this.#look(), left);
  }

  stop() {
    this.timers.clearTimeout(this.timer);
  }
}

/** When to try again: after 1, 2, 4, 8, 16 seconds, then no more. */
export class Backoff {
  used = 0;

  /** @param {{ attempts?: number, first?: number, cap?: number }} [policy] milliseconds */
  constructor({ attempts = 5, first = 1000, cap = 30_000 } = {}) {
    this.attempts = attempts;
    this.first = first;
    this.cap = cap;
  }

  /** Milliseconds to wait before the next try; null if that was the last. */
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
