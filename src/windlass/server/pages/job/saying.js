/** What an event says, in words: the text of its lines, and which sort of line it is. */

/** @import { JobEvent } from "../client/windlass.js" */

import { size, span } from "../format.js";

/** @typedef {"output" | "log" | "warning" | "progress" | "state"} Sort */

/** @type {Record<Sort, string>} */
export const SORTS = {
  output: "Output",
  log: "Log",
  warning: "Warnings",
  progress: "Progress",
  state: "States",
};

/** @typedef {Pick<JobEvent, "type" | "data">} Said */

/**
 * @param {Said} event
 * @returns {Sort}
 */
export function sortOf({ type, data }) {
  if (type === "output") return "output";
  if (type === "warning" || type === "error" || type === "process-error") return "warning";
  if (type === "log") return /^(warn|err|crit|fatal)/i.test(String(data.level)) ? "warning" : "log";
  if (type === "step-progress" || type === "step-status" || type === "artifact") return "progress";
  return "state";
}

/** How grave a line is, for its colour. @param {Said} event */
export function weightOf({ type, data }) {
  if (type === "error" || type === "process-error" || type === "job-failed") return "grave";
  if (type === "log" && /^(err|crit|fatal)/i.test(String(data.level))) return "grave";
  if (type === "log" && /^debug/i.test(String(data.level))) return "faint";
  if (type === "output") return data.stream === "stderr" ? "stderr" : "";
  if (type === "warning" || type === "cancel-requested" || sortOf({ type, data }) === "warning")
    return "warn";
  return type === "job-completed" ? "good" : "";
}

/**
 * A value that should be a text; whoever emits an event may give anything.
 *
 * @param {unknown} value
 */
function word(value) {
  if (typeof value === "string") return value;
  return value === null || value === undefined || value === false
    ? ""
    : (JSON.stringify(value) ?? "");
}

/** @param {unknown[]} words */
const joined = (...words) => words.map(word).filter(Boolean).join(" · ");

/** @type {Record<string, (data: Record<string, any>) => string>} */
const TEXTS = {
  "job-status": (data) =>
    joined(
      data.status,
      data.status === "running" &&
        `attempt ${word(data.attempt)} on ${word(data.worker) || "a worker"}`,
      data.status === "retrying" &&
        data.outcome &&
        `${word(data.outcome)} of attempt ${word(data.attempt)}`,
      data.delay && `again in ${span(Number(data.delay))}`,
      data.errorMessage,
    ),
  "step-status": (data) => `step ${word(data.step)} ${word(data.status)}`,
  "step-progress": (data) =>
    joined(`${word(data.progressPct) || 0} %`, data.stage, data.step, data.message),
  "job-completed": () => "succeeded",
  "job-failed": (data) => joined("failed", data.errorMessage),
  "job-cancelled": (data) => joined("canceled", data.by && `by ${word(data.by)}`, data.message),
  "cancel-requested": (data) =>
    joined(`cancel asked for by ${word(data.by) || "somebody"}`, data.reason),
  artifact: (data) => joined(data.name, data.uri, typeof data.size === "number" && size(data.size)),
  "process-start": (data) =>
    joined("process started", data.pid && `pid ${word(data.pid)}`, data.command),
  "process-end": (data) =>
    joined(
      `process ended with ${word(data.exitCode) || "no exit code"}`,
      typeof data.runDuration === "number" && `after ${span(data.runDuration)}`,
    ),
  resync: () => "what came before this is no longer kept",
};

/** @param {Said} event */
export function textOf({ type, data }) {
  if (type === "output") return word(data.text);
  const text = TEXTS[type]?.(data) ?? word(data.message);
  if (text !== "") return text;
  const { correlationId: _, ...rest } = data;
  return Object.values(rest).some((one) => one !== null) ? word(rest) : type;
}
