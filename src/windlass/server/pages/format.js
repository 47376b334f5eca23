/** Formatting of numbers, times, ids and counts. */

/** @import { State } from "./client/windlass.js" */

import { STATES } from "./job-state.js";

const numbers = new Intl.NumberFormat("en");
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const clock = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });
const calendar = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
const today = new Intl.DateTimeFormat("sv"); // 2026-01-31

/** @param {number} value */
export const number = (value) => numbers.format(value);

/** @param {number} value */
export const compactNumber = (value) =>
  value < 10_000 ? numbers.format(value) : compact.format(value);

/**
 * Format a duration: 850 ms, 4.2 s, 3 m 20 s, 2 h 5 m, 3 d 4 h.
 *
 * @param {number} seconds
 */
export function duration(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  if (seconds < 0.0005) return "0 s";
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  const parts = /** @type {const} */ ([
    [86_400, "d", 3600, "h"],
    [3600, "h", 60, "m"],
    [60, "m", 1, "s"],
  ]);
  const [unit, name, lesser, lesserName] =
    parts.find(([size]) => seconds >= size) ?? parts[parts.length - 1];
  const rest = Math.floor((seconds % unit) / lesser);
  return `${Math.floor(seconds / unit)} ${name}${rest ? ` ${rest} ${lesserName}` : ""}`;
}

/** @param {string | number | Date} from @param {string | number | Date} [until] */
export const secondsSince = (from, until = Date.now()) =>
  Math.max(0, (new Date(until).getTime() - new Date(from).getTime()) / 1000);

/** @param {string | Date} time */
export function ago(time) {
  const seconds = (Date.now() - new Date(time).getTime()) / 1000;
  if (Math.abs(seconds) < 2) return "now";
  const text = coarse(Math.abs(seconds));
  return seconds > 0 ? `${text} ago` : `in ${text}`;
}

/** @param {number} seconds */
function coarse(seconds) {
  if (seconds < 60) return `${Math.floor(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} m`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h`;
  return `${Math.floor(seconds / 86_400)} d`;
}

/** Format date and time. @param {string | Date} time */
export const dateTime = (time) => calendar.format(new Date(time));

/** Format a time, with its date unless it is today. @param {string | Date} time */
export function timeText(time) {
  const given = new Date(time);
  return today.format(given) === today.format(new Date()) ? clock.format(given) : dateTime(given);
}

/** Return the distinctive end of an id; its start is a timestamp. @param {string} id */
export const shortId = (id) => `…${id.slice(-8)}`;

const twoDigits = (/** @type {number} */ value) => String(value).padStart(2, "0");

/** Format a time of day to the millisecond. @param {number} at */
export function preciseTime(at) {
  const time = new Date(at);
  const parts = [time.getHours(), time.getMinutes(), time.getSeconds()].map(twoDigits);
  return `${parts.join(":")}.${String(time.getMilliseconds()).padStart(3, "0")}`;
}

/** @param {number} count @param {string} one @param {string} [many] */
export const plural = (count, one, many = `${one}s`) =>
  `${number(count)} ${count === 1 ? one : many}`;

/** @param {number} bytes */
export function byteSize(bytes) {
  if (bytes < 1024) return `${bytes} B`;
  if (bytes < 1024 ** 2) return `${(bytes / 1024).toFixed(1)} KiB`;
  if (bytes < 1024 ** 3) return `${(bytes / 1024 ** 2).toFixed(1)} MiB`;
  return `${(bytes / 1024 ** 3).toFixed(1)} GiB`;
}

/** Format job counts per state: 3 queued, 1 failed. @param {Partial<Record<State, number>>} counts */
export const stateCountsText = (counts) =>
  STATES.filter((state) => counts[state])
    .map((state) => `${number(counts[state] ?? 0)} ${state}`)
    .join(", ") || "none";
