/** Header of the job page: name, state, progress, outcome, details. */

/** @import { Job } from "../client/windlass.js" */
/** @import { Renderable } from "../view/dom.js" */
/** @import { Eta } from "./eta.js" */
/** @import { JobStatus } from "./status.js" */

import { at as clock, brief, since, span } from "../format.js";
import { h } from "../view/dom.js";
import { badge, bar, copyButton, fieldList, jobLink, link, tagList, when } from "../view/components.js";
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
    badge(job.state, job.cancelRequested && job.state === "running" ? "stopping" : job.state),
    h("span", { class: "id mono soft", title: job.id }, job.id),
    copyButton(() => job.id, "the id"),
    actions,
  );

/**
 * Render the progress; it takes the same space in every state.
 *
 * @param {JobStatus} status
 * @param {Eta | null} eta
 * @param {Renderable} [beside]
 */
export function progress(status, eta, beside = null) {
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
      h("span", { class: "eta soft nowrap" }, left === null ? beside : remainingText(left)),
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

/** @param {Job} job @returns {Renderable} */
export function jobDetails(job) {
  const started = job.firstStartedAt;
  /** @type {([Renderable, Renderable] | false)[]} */
  const pairs = [
    ["Queue", link("jobs", job.queue, { queue: job.queue })],
    job.owner !== "" && ["Owner", link("jobs", job.owner, { owner: job.owner })],
    job.team !== null && ["Team", job.team],
    job.tags.length > 0 && ["Tags", h("span", null, tagList(job.tags))],
    job.worker !== null && [
      "Worker",
      link("jobs", job.worker, { worker: job.worker, state: "running" }),
    ],
    [
      "Attempt",
      `${job.attempt}${job.retryCount ? ` (${job.retryCount} retried)` : ""}${job.crashCount ? ` (${job.crashCount} crashed)` : ""}`,
    ],
    job.priority !== 0 && ["Priority", job.priority],
    ["Created", when(job.createdAt)],
    started !== null && ["Time to start", span(since(job.createdAt, started))],
    job.dueAt !== null &&
      !ended(job.state) && ["Due", h("span", null, clock(job.dueAt), " · ", when(job.dueAt))],
    job.expiresAt !== null && !ended(job.state) && ["Expires", when(job.expiresAt)],
    started !== null && [
      ended(job.state) ? "Duration" : "Running for",
      span(since(started, job.endedAt ?? Date.now())),
    ],
    job.endedAt !== null && ["Ended", when(job.endedAt)],
    job.lastCompletedStep !== null && ["Last completed step", job.lastCompletedStep],
    job.limitKey !== null && ["Limit key", job.limitKey],
    job.uniqueKey !== null && ["Unique key", job.uniqueKey],
    job.requestId !== null && ["Request id", job.requestId],
    ["Correlation id", h("span", { class: "mono" }, job.correlationId)],
    job.retryOf !== null && ["Retry of", jobLink(job.retryOf)],
    job.retriedAs !== null && ["Retried as", jobLink(job.retriedAs)],
    job.flowId !== null && [
      "Flow",
      h(
        "span",
        { class: "mono" },
        link(`flows/${encodeURIComponent(job.flowId)}`, brief(job.flowId)),
      ),
    ],
  ];
  return fieldList(/** @type {[Renderable, Renderable][]} */ (pairs.filter(Boolean)));
}
