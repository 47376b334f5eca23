/** Text, kind and severity of an event's log lines. */

/** @import { JobEvent } from "../../client/windlass.js" */

import { byteSize, duration } from "../../format.js";

/** @typedef {"output" | "log" | "warning" | "progress" | "state"} LineKind */

/** @type {Record<LineKind, string>} */
export const KINDS = {
  output: "Output",
  log: "Log",
  warning: "Warnings",
  progress: "Progress",
  state: "States",
};

/** @typedef {Pick<JobEvent, "type" | "data">} EventData */

/**
 * @param {EventData} event
 * @returns {LineKind}
 */
export function kindOf({ type, data }) {
  if (type === "output") return "output";
  if (type === "warning" || type === "error" || type === "process-error") return "warning";
  if (type === "log") return /^(warn|err|crit|fatal)/i.test(String(data.level)) ? "warning" : "log";
  if (type === "step-progress" || type === "step-status" || type === "artifact") return "progress";
  return "state";
}

/** Return the severity class of a line. @param {EventData} event */
export function severityOf({ type, data }) {
  if (type === "error" || type === "process-error" || type === "job-failed") return "severe";
  if (type === "log" && /^(err|crit|fatal)/i.test(String(data.level))) return "severe";
  if (type === "log" && /^debug/i.test(String(data.level))) return "faint";
  if (type === "output") return data.stream === "stderr" ? "stderr" : "";
  if (type === "warning" || type === "cancel-requested" || kindOf({ type, data }) === "warning")
    return "warn";
  return type === "job-completed" ? "good" : "";
}

/**
 * Return a value as text. Event data is untrusted and may have any type.
 *
 * @param {unknown} value
 */
function toText(value) {
  if (typeof value === "string") return value;
  return value === null || value === undefined || value === false
    ? ""
    : (JSON.stringify(value) ?? "");
}

/** @param {unknown[]} parts */
const joined = (...parts) => parts.map(toText).filter(Boolean).join(" · ");

/** @type {Record<string, (data: Record<string, any>) => string>} */
const TEXTS = {
  "job-status": (data) =>
    joined(
      data.status,
      data.status === "running" &&
        `attempt ${toText(data.attempt)} on ${toText(data.worker) || "a worker"}`,
      data.status === "retrying" &&
        data.outcome &&
        `${toText(data.outcome)} of attempt ${toText(data.attempt)}`,
      data.delay && `retry in ${duration(Number(data.delay))}`,
      data.errorMessage,
    ),
  "step-status": (data) => `step ${toText(data.step)} ${toText(data.status)}`,
  "step-progress": (data) =>
    joined(`${toText(data.progressPct) || 0} %`, data.stage, data.step, data.message),
  "job-completed": () => "succeeded",
  "job-failed": (data) => joined("failed", data.errorMessage),
  "job-cancelled": (data) => joined("canceled", data.by && `by ${toText(data.by)}`, data.message),
  "cancel-requested": (data) =>
    joined(`cancel requested by ${toText(data.by) || "unknown"}`, data.reason),
  artifact: (data) =>
    joined(data.name, data.uri, typeof data.size === "number" && byteSize(data.size)),
  "process-start": (data) =>
    joined("process started", data.pid && `pid ${toText(data.pid)}`, data.command),
  "process-end": (data) =>
    joined(
      `process exited with ${toText(data.exitCode) || "no exit code"}`,
      typeof data.runDuration === "number" && `after ${duration(data.runDuration)}`,
    ),
  resync: () => "earlier events were pruned",
};

/** @param {EventData} event */
export function textOf({ type, data }) {
  if (type === "output") return toText(data.text);
  const text = TEXTS[type]?.(data) ?? toText(data.message);
  if (text !== "") return text;
  const { correlationId: _, ...rest } = data;
  return Object.values(rest).some((value) => value !== null) ? toText(rest) : type;
}
