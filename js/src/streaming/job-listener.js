/** Callbacks of one subscriber of a job: event, state, progress, end. */

/** @import { FollowOptions, JobEvent, Log } from "../../windlass.js" */

import { safeCallback } from "./safe-callback.js";

/**
 * Return the progress in an event, or undefined if it has none.
 *
 * @param {JobEvent} event
 * @returns {number | undefined}
 */
function percentOf({ type, data }) {
  if (type === "step-progress") return data.progressPct ?? undefined;
  if (type === "job-status" || type === "job-completed" || type === "resync") return data.percent;
  return undefined;
}

/**
 * @param {JobEvent} event
 * @returns {import("../../windlass.js").State | undefined}
 */
function stateOf({ type, data, final }) {
  if (type === "resync") return data.state;
  return type === "job-status" || final ? data.status : undefined;
}

export class JobListener {
  percent = 0;
  /** @type {string | null} */
  state = null;

  /**
   * @param {FollowOptions} calls
   * @param {Log} log
   */
  constructor(calls, log) {
    this.calls = calls;
    this.log = log;
  }

  /** @param {JobEvent} event */
  handle(event) {
    const { onEvent, onState, onProgress, onEnd } = this.calls;
    this.#call(onEvent, event);
    const state = stateOf(event);
    if (state !== undefined && state !== this.state) {
      this.state = state;
      this.#call(onState, state, event);
    }
    const percent = percentOf(event);
    if (percent !== undefined && this.#advances(percent, event)) {
      this.percent = percent;
      this.#call(onProgress, percent, event);
    }
    if (event.final) this.#call(onEnd, event);
  }

  /**
   * Return whether progress did not decrease. Logs and ignores a lower value.
   *
   * @param {number} percent
   * @param {JobEvent} event
   */
  #advances(percent, event) {
    if (percent >= this.percent) return true;
    const update = `progress of ${percent} % (event ${event.seq} of job ${event.jobId})`;
    this.log.warn(`windlass: ignored ${update}: it was at ${this.percent} %`);
    return false;
  }

  /** The job ended before the cursor, so there is no final event. */
  end() {
    this.#call(this.calls.onEnd, null);
  }

  /**
   * @template {any[]} A
   * @param {((...values: A) => unknown) | undefined} call
   * @param {A} values
   */
  #call(call, ...values) {
    safeCallback(this.log, call)(...values);
  }
}
