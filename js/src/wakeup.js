/** Wake-up of waiting functions. */

/** Wakes all current waiters. */
export class Wakeup {
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
