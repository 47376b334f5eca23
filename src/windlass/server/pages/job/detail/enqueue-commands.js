/** Commands that enqueue the same job again. */

/** @import { Job } from "../../client/windlass.js" */

import { currentSession } from "../../session.js";

/** Quote a word for a POSIX shell. @param {string} text */
export const shellQuote = (text) =>
  /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", String.raw`'\''`)}'`;

/** Non-standard JSON that `windlass enqueue` accepts. */
const NON_STANDARD = new Set(["NaN", "Infinity", "-Infinity"]);

/** Format a value so that `windlass enqueue` reads it back. @param {unknown} value */
function argumentText(value) {
  if (typeof value !== "string" || NON_STANDARD.has(value.trim())) return JSON.stringify(value);
  try {
    JSON.parse(value);
    return JSON.stringify(value); // a string that is valid JSON
  } catch {
    return value;
  }
}

/** Whether the arguments can be written as name=value. @param {Job} job */
export const hasNamedArguments = (job) =>
  !job.sealed &&
  (job.arguments ?? null) !== null &&
  typeof job.arguments === "object" &&
  Object.keys(job.arguments).every((name) => /^[\p{L}_][\p{L}\p{N}_]*$/u.test(name));

/** @param {Job} job */
export function cliCommand(job) {
  const named = Object.entries(job.arguments).map(([name, value]) =>
    shellQuote(`${name}=${argumentText(value)}`),
  );
  const options = [
    ["--queue", job.queue],
    ["--priority", job.priority === 0 ? null : String(job.priority)],
    ...job.tags.map((tag) => ["--tag", tag]),
    ["--limit-key", job.limitKey],
    ["--unique-key", job.uniqueKey],
  ];
  const given = options
    .filter(([, value]) => value !== null)
    .map(([name, value]) => shellQuote(`${name}=${value}`));
  const command = ["windlass", "enqueue", shellQuote(job.task), ...given];
  return [...command, ...(named.length > 0 ? ["--", ...named] : [])].join(" ");
}

/** @param {Job} job */
export function curlCommand(job) {
  const body = {
    task: job.task,
    arguments: job.arguments ?? {},
    queue: job.queue,
    ...(job.priority === 0 ? {} : { priority: job.priority }),
    ...(job.tags.length > 0 ? { tags: job.tags } : {}),
    ...(job.owner ? { owner: job.owner } : {}),
    ...(job.limitKey === null ? {} : { limitKey: job.limitKey }),
    ...(job.uniqueKey === null ? {} : { uniqueKey: job.uniqueKey }),
  };
  const lines = [
    `curl ${shellQuote(new URL("api/jobs", document.baseURI).href)}`,
    ...(currentSession()?.by === "open" ? [] : ['-H "Authorization: Bearer $WINDLASS_KEY"']),
    "-H 'Content-Type: application/json'",
    `-d ${shellQuote(JSON.stringify(body))}`,
  ];
  return lines.join(" \\\n  ");
}
