/**
 * Estimated time of completion, from the progress rate of the current attempt. Estimates are
 * smoothed, and grow while there is no progress.
 */

/** @import { JobEvent } from "../client/windlass.js" */

const SMOOTHING = 0.25; // weight of a new estimate

export class Eta {
  #startPercent = 0;
  #from = 0;
  #percent = 0;
  /** @type {number | null} */
  #finish = null;

  /** @param {JobEvent} event */
  add({ type, data, at }) {
    const time = at.getTime();
    if (type === "job-status" && data.status === "running") {
      this.#startPercent = this.#percent = Number(data.percent) || 0;
      this.#from = time;
      this.#finish = null;
    } else if (
      type === "step-progress" &&
      this.#from > 0 &&
      Number(data.progressPct) > this.#percent
    ) {
      this.#percent = Number(data.progressPct);
      const next = time + this.#remaining(time);
      this.#finish =
        this.#finish === null ? next : this.#finish + SMOOTHING * (next - this.#finish);
    }
  }

  /** Return the remaining milliseconds at the attempt's mean rate. @param {number} time */
  #remaining(time) {
    return ((time - this.#from) * (100 - this.#percent)) / (this.#percent - this.#startPercent);
  }

  /**
   * Return the remaining seconds, or null without an estimate.
   *
   * @param {number} now
   */
  left(now) {
    if (this.#finish === null || this.#percent >= 100) return null;
    return Math.max(this.#finish - now, this.#remaining(Math.max(now, this.#from)) / 2) / 1000;
  }
}

/** Format the remaining time. @param {number} seconds */
export function remainingText(seconds) {
  if (seconds < 8) return "a few seconds left";
  if (seconds < 55) return `about ${Math.ceil(seconds / 10) * 10} s left`;
  if (seconds < 3300) return `about ${Math.max(1, Math.round(seconds / 60))} m left`;
  if (seconds < 36_000) return `about ${Math.round(seconds / 1800) / 2} h left`;
  if (seconds < 129_600) return `about ${Math.round(seconds / 3600)} h left`;
  return `about ${Math.round(seconds / 86_400)} d left`;
}
