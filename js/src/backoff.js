/** Delays between retries. */

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
