/** Details of a job: queue, owner, attempts, times, keys, related jobs. */

/** @import { Job } from "../../client/windlass.js" */
/** @import { Renderable } from "../../view/virtual-dom.js" */

import { duration, plural, secondsSince, shortId, timeText } from "../../format.js";
import { ended } from "../../job-state.js";
import { fieldList, jobLink, link, tagList, when } from "../../view/components.js";
import { h } from "../../view/virtual-dom.js";

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
    ["Attempt", attemptText(job)],
    job.priority !== 0 && ["Priority", job.priority],
    ["Created", when(job.createdAt)],
    started !== null && ["Time to start", duration(secondsSince(job.createdAt, started))],
    job.dueAt !== null &&
      !ended(job.state) && ["Scheduled for", h("span", null, timeText(job.dueAt), " · ", when(job.dueAt))],
    job.expiresAt !== null && !ended(job.state) && ["Expires", when(job.expiresAt)],
    started !== null && [
      ended(job.state) ? "Duration" : "Running for",
      duration(secondsSince(started, job.endedAt ?? Date.now())),
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
        link(`flows/${encodeURIComponent(job.flowId)}`, shortId(job.flowId)),
      ),
    ],
  ];
  return fieldList(/** @type {[Renderable, Renderable][]} */ (pairs.filter(Boolean)));
}

/** Format the attempt number with its retries and crashes. @param {Job} job */
function attemptText({ attempt, retryCount, crashCount }) {
  const counts = [
    retryCount > 0 && plural(retryCount, "retry", "retries"),
    crashCount > 0 && plural(crashCount, "crash", "crashes"),
  ].filter(Boolean);
  return counts.length > 0 ? `${attempt} (${counts.join(", ")})` : String(attempt);
}
