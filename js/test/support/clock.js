/** Virtual clock that a test advances. */

/** Run pending tasks of the event loop. Reading a JSON body takes several. */
export async function settled() {
  for (let round = 0; round < 10; round += 1) await new Promise((resolve) => setImmediate(resolve));
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

  /** Number of pending timers. */
  get pending() {
    return this.#timers.size;
  }

  /** @param {number} ms */
  async advance(ms) {
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
