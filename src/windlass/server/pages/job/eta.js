/**
 * When a running job will be done, if it goes on as it did in this attempt. Each new estimate moves
 * the last one only in part, so that what is shown is steady; and while nothing comes, it grows.
 */

/** @import { JobEvent } from "../client/windlass.js" */

const TRUST = 0.25; // in a new estimate, against all before

export class Eta {
  #begun = 0;
  #from = 0;
  #percent = 0;
  /** @type {number | null} */
  #finish = null;

  /** @param {JobEvent} event */
  add({ type, data, at }) {
    const time = at.getTime();
    if (type === "job-status" && data.status === "running") {
      this.#begun = this.#percent = Number(data.percent) || 0;
      this.#from = time;
      this.#finish = null;
    } else if (
      type === "step-progress" &&
      this.#from > 0 &&
      Number(data.progressPct) > this.#percent
    ) {
      this.#percent = Number(data.progressPct);
      const next = time + this.#rest(time);
      this.#finish = this.#finish === null ? next : this.#finish + TRUST * (next - this.#finish);
    }
  }

  /** Milliseconds to go, at the mean rate of the attempt until then. @param {number} time */
  #rest(time) {
    return ((time - this.#from) * (100 - this.#percent)) / (this.#percent - this.#begun);
  }

  /**
   * Seconds; null while nothing can be said.
   *
   * @param {number} now
   */
  left(now) {
    if (this.#finish === null || this.#percent >= 100) return null;
    return Math.max(this.#finish - now, this.#rest(Math.max(now, this.#from)) / 2) / 1000;
  }
}

/** As one would say it. @param {number} seconds */
export function about(seconds) {
  if (seconds < 8) return "a few seconds left";
  if (seconds < 55) return `about ${Math.ceil(seconds / 10) * 10} s left`;
  if (seconds < 3300) return `about ${Math.max(1, Math.round(seconds / 60))} m left`;
  if (seconds < 36_000) return `about ${Math.round(seconds / 1800) / 2} h left`;
  if (seconds < 129_600) return `about ${Math.round(seconds / 3600)} h left`;
  return `about ${Math.round(seconds / 86_400)} d left`;
}
