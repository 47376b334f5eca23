/** Time that passes when a test says so. */

/** Lets everything happen that waits for nothing but its turn; a body of JSON takes a few. */
export async function settled() {
  for (let turn = 0; turn < 10; turn += 1) await new Promise((resolve) => setImmediate(resolve));
}

export class VirtualClock {
  #now = 0;
  #next = 1;
  /** @type {Map<number, { at: number, call: () => void }>} */
  #timers = new Map();

  now = () => this.#now;

  setTimeout = (/** @type {() => void} */ call, /** @type {number} */ ms) => {
    this.#timers.set(this.#next, { at: this.#now + ms, call });
    return this.#next++;
  };

  clearTimeout = (/** @type {any} */ timer) => void this.#timers.delete(timer);

  /** How many timers are set. */
  get waiting() {
    return this.#timers.size;
  }

  /** @param {number} ms */
  async pass(ms) {
    const end = this.#now + ms;
    await settled();
    for (;;) {
      const [first] = [...this.#timers].sort((a, b) => a[1].at - b[1].at || a[0] - b[0]);
      if (first === undefined || first[1].at > end) break;
      this.#timers.delete(first[0]);
      this.#now = first[1].at;
      first[1].call();
      await settled();
    }
    this.#now = end;
  }
}
