/** States of jobs, and the actions that each state allows. */

/** @import { JobSummary, State } from "./client/windlass.js" */

/** @type {State[]} */
export const STATES = [
  "created",
  "queued",
  "running",
  "retrying",
  "succeeded",
  "failed",
  "canceled",
];

/** @param {State | null | undefined} state */
export const ended = (state) => state === "succeeded" || state === "failed" || state === "canceled";

/** Whether an action applies to a job in its current state. */
export const CAN = {
  cancel: (/** @type {JobSummary} */ job) => !ended(job.state) && !job.cancelRequested,
  retry: (/** @type {JobSummary} */ job) =>
    (job.state === "failed" || job.state === "canceled") && job.retriedAs === null,
  resume: (/** @type {JobSummary} */ job) => job.state === "failed" && job.retriedAs === null,
  submit: (/** @type {JobSummary} */ job) => job.state === "created" && job.held,
  delete: (/** @type {JobSummary} */ job) => ended(job.state),
};
