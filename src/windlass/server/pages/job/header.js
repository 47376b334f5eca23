/** Header of the job page: name, state, progress, outcome. */

/** @import { Job } from "../client/windlass.js" */
/** @import { Renderable } from "../view/virtual-dom.js" */
/** @import { Eta } from "./eta.js" */
/** @import { JobStatus } from "./status.js" */

import { h } from "../view/virtual-dom.js";
import { badge, bar, copyButton } from "../view/components.js";
import { ended } from "../job-state.js";
import { remainingText } from "./eta.js";

/**
 * @param {Job} job
 * @param {Renderable} actions
 */
export const nameRow = (job, actions) =>
  h(
    "div",
    { class: "name-row" },
    h("h1", null, job.task),
    badge(job.state, job.cancelRequested && job.state === "running" ? "canceling" : job.state),
    h("span", { class: "id mono soft", title: job.id }, job.id),
    copyButton(() => job.id, "the id"),
    actions,
  );

/**
 * Render the progress; it takes the same space in every state.
 *
 * @param {JobStatus} status
 * @param {Eta | null} eta
 * @param {Renderable} [trailing]
 */
export function progress(status, eta, trailing = null) {
  const { state, percent, stage, phase, message } = status;
  const left = state === "running" ? (eta?.left(Date.now()) ?? null) : null;
  return h(
    "div",
    { class: `job-progress state-${state}`, key: "progress" },
    h(
      "div",
      { class: "summary" },
      h("strong", { class: "percent" }, `${percent} %`),
      stage && h("span", { class: "stage" }, stage),
      phase && phase !== stage && h("span", { class: "soft" }, phase),
      h("span", { class: "message soft cut", title: message }, message),
      h("span", { class: "eta soft nowrap" }, left === null ? trailing : remainingText(left)),
    ),
    bar(percent, state, "Job progress"),
  );
}

/** Render the outcome. @param {Job} job @returns {Renderable} */
export function outcomeNote(job) {
  if (!ended(job.state)) return null;
  const error = job.lastError;
  const details = job.failureDetails;
  const by = job.cancelBy ? `Canceled by ${job.cancelBy}` : "Canceled";
  if (job.state === "canceled") {
    return h(
      "p",
      { class: "note state-canceled", key: "end" },
      job.cancelReason ? `${by}: ${job.cancelReason}` : by,
    );
  }
  if (job.state !== "failed" || error === null) return null;
  return h(
    "div",
    { class: "note state-failed error-note", key: "end" },
    h(
      "div",
      null,
      h("strong", null, error.message ?? details?.summary ?? error.code),
      h(
        "p",
        { class: "soft" },
        [
          error.type,
          error.code !== error.type && error.code,
          details?.stage && `in stage ${details.stage}`,
          error.step && `in step ${error.step}`,
        ]
          .filter(Boolean)
          .join(" · "),
      ),
      details?.advice && h("p", { class: "advice" }, details.advice),
    ),
  );
}
