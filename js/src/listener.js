/** From events to what a page shows: every event, where the job stands, how far it is. */

/** @import { FollowOptions, JobEvent, Log } from "../windlass.js" */

/**
 * How far an event says that its job is; undefined if it does not speak of that.
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
 * @returns {import("../windlass.js").State | undefined}
 */
function stateOf({ type, data, final }) {
  if (type === "resync") return data.state;
  return type === "job-status" || final ? data.status : undefined;
}

export class Listener {
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
  hear(event) {
    const { onEvent, onState, onProgress, onEnd } = this.calls;
    this.#call(onEvent, event);
    const state = stateOf(event);
    if (state !== undefined && state !== this.state) {
      this.state = state;
      this.#call(onState, state, event);
    }
    const percent = percentOf(event);
    if (percent !== undefined && this.#forward(percent, event)) {
      this.percent = percent;
      this.#call(onProgress, percent, event);
    }
    if (event.final) this.#call(onEnd, event);
  }

  /**
   * Progress never goes back on a page, whatever is told.
   *
   * @param {number} percent
   * @param {JobEvent} event
   */
  #forward(percent, event) {
    if (percent >= this.percent) return true;
    const said = `progress of ${percent} % (event ${event.seq} of job ${event.jobId})`;
    this.log.warn(`windlass: ${said} is left out: it was at ${this.percent} %`);
    return false;
  }

  /** The job had ended before the cursor: there is no event to tell it with. */
  end() {
    this.#call(this.calls.onEnd, null);
  }

  /**
   * @template {any[]} A
   * @param {((...values: A) => unknown) | undefined} call
   * @param {A} values
   */
  #call(call, ...values) {
    guarded(this.log, call)(...values);
  }
}

/**
 * A listener that fails is that listener's own matter: the others, and the stream, go on.
 *
 * @template {any[]} A
 * @param {Log} log
 * @param {((...values: A) => unknown) | undefined} call
 * @returns {(...values: A) => void}
 */
export function guarded(log, call) {
  return (...values) => {
    try {
      call?.(...values);
    } catch (error) {
      log.error("windlass: a listener failed", error);
    }
  };
}
