/** The same job again, as a command. */

/** @import { Job } from "../client/windlass.js" */

import { self } from "../session.js";

/** A word for a POSIX shell, whatever is in it. @param {string} text */
export const quoted = (text) =>
  /^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", String.raw`'\''`)}'`;

/** What `windlass enqueue` takes for JSON, though it is none. */
const LOOSE = new Set(["NaN", "Infinity", "-Infinity"]);

/** As `windlass enqueue` reads it back: JSON, or else text. @param {unknown} value */
function value(value) {
  if (typeof value !== "string" || LOOSE.has(value.trim())) return JSON.stringify(value);
  try {
    JSON.parse(value);
    return JSON.stringify(value); // a text that looks like JSON
  } catch {
    return value;
  }
}

/** Whether its arguments can be written as name=value. @param {Job} job */
export const enqueueable = (job) =>
  !job.sealed &&
  (job.arguments ?? null) !== null &&
  typeof job.arguments === "object" &&
  Object.keys(job.arguments).every((name) => /^[\p{L}_][\p{L}\p{N}_]*$/u.test(name));

/** @param {Job} job */
export function asEnqueue(job) {
  const named = Object.entries(job.arguments).map(([name, one]) => quoted(`${name}=${value(one)}`));
  const options = [
    ["--queue", job.queue],
    ["--priority", job.priority === 0 ? null : String(job.priority)],
    ...job.tags.map((tag) => ["--tag", tag]),
    ["--limit-key", job.limitKey],
    ["--unique-key", job.uniqueKey],
  ];
  const given = options
    .filter(([, one]) => one !== null)
    .map(([name, one]) => quoted(`${name}=${one}`));
  const begin = ["windlass", "enqueue", quoted(job.task), ...given];
  return [...begin, ...(named.length > 0 ? ["--", ...named] : [])].join(" ");
}

/** @param {Job} job */
export function asCurl(job) {
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
    `curl ${quoted(new URL("api/jobs", document.baseURI).href)}`,
    ...(self()?.by === "open" ? [] : ['-H "Authorization: Bearer $WINDLASS_KEY"']),
    "-H 'Content-Type: application/json'",
    `-d ${quoted(JSON.stringify(body))}`,
  ];
  return lines.join(" \\\n  ");
}
