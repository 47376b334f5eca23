/** Status of a job, computed from its events or from its row. */

/** @import { Job, JobEvent, State } from "../client/windlass.js" */

/**
 * @typedef {object} JobStatus
 * @property {State} state
 * @property {number} percent
 * @property {string | null} stage
 * @property {string | null} phase
 * @property {string} message
 * @property {number} attempt
 * @property {string | null} worker
 * @property {boolean} cancelRequested
 * @property {number} seq
 * @property {number} at
 */

/** @type {JobStatus} */
export const INITIAL_STATUS = {
  state: "created", percent: 0, stage: null, phase: null, message: "", attempt: 0, worker: null,
  cancelRequested: false, seq: 0, at: 0,
};

const text = (/** @type {unknown} */ value, /** @type {string | null} */ fallback) =>
  typeof value === "string" ? value : fallback;

/**
 * Return the status after an event.
 *
 * @param {JobStatus} before
 * @param {JobEvent} event
 * @returns {JobStatus}
 */
export function applyEvent(before, { type, data, seq, at, final }) {
  const now = { ...before, seq, at: at.getTime() };
  if (type === "cancel-requested") return { ...now, cancelRequested: true };
  if (type === "step-progress") {
    return {
      ...now,
      percent: Math.max(before.percent, Number(data.progressPct) || 0),
      stage: text(data.stage, before.stage),
      phase: text(data.phase, before.phase),
      message: text(data.message, null) ?? "",
    };
  }
  if (type !== "job-status" && type !== "resync" && !final) return now;
  return {
    ...now,
    state: data.status ?? data.state ?? before.state,
    percent: Math.max(before.percent, Number(data.percent) || 0),
    stage: text(data.stage, before.stage),
    phase: text(data.phase, before.phase),
    attempt: data.attempt ?? before.attempt,
    worker: text(data.worker, before.worker),
    message: data.status === "running" ? "" : before.message,
  };
}

/** Return the status in the job's row. @param {Job} job @returns {JobStatus} */
export const statusOf = (job) => ({
  state: job.state,
  percent: job.percent,
  stage: job.stage,
  phase: job.phase,
  message: "",
  attempt: job.attempt,
  worker: job.worker,
  cancelRequested: job.cancelRequested,
  seq: job.seq,
  at: Date.parse(job.updatedAt),
});
