/** Query of the job list: from and to the URL, and as an API filter. */

/** @import { Filter, JobSummary } from "../client/windlass.js" */

import { duration } from "../format.js";
import { pageUrl } from "../navigation.js";

/** Filters with several values: a job matches any of them; for `tag`, all of them. */
const MULTIPLE = /** @type {const} */ (["state", "queue", "task", "tag"]);
const SINGLE = /** @type {const} */ ([
  "text",
  "owner",
  "team",
  "worker",
  "error",
  "requestId",
  "uniqueKey",
  "retryOf",
  "flowId",
  "createdFrom",
  "createdTo",
]);

/** @typedef {typeof MULTIPLE[number] | typeof SINGLE[number]} FilterName */
/** @typedef {"hour" | "day" | "week"} TimeRange */

/** @type {Record<TimeRange, number>} */
export const RANGE_SECONDS = { hour: 3600, day: 86_400, week: 604_800 };

/**
 * @typedef {object} JobQuery
 * @property {Partial<Record<FilterName, string[]>>} values of the filters in use
 * @property {TimeRange | null} range
 * @property {string | null} cursor start of the page; null: the newest
 */

/** @param {URLSearchParams} params @returns {JobQuery} */
export function queryFrom(params) {
  /** @type {JobQuery["values"]} */
  const values = {};
  for (const name of [...MULTIPLE, ...SINGLE]) {
    const found = [...new Set(params.getAll(name).filter((value) => value !== ""))];
    if (found.length > 0) values[name] = isMultiple(name) ? found : found.slice(0, 1);
  }
  return { values, range: rangeOf(params.get("since")), cursor: params.get("cursor") };
}

/** @param {string | null} text @returns {TimeRange | null} */
export const rangeOf = (text) =>
  text !== null && Object.hasOwn(RANGE_SECONDS, text) ? /** @type {TimeRange} */ (text) : null;

/** @param {FilterName} name */
const isMultiple = (name) => MULTIPLE.some((multiple) => multiple === name);

/** Return the URL of a query; equal queries have equal URLs. @param {JobQuery} query */
export function urlOf({ values, range, cursor }) {
  const given = [...MULTIPLE, ...SINGLE].map((name) => [name, values[name]]);
  return pageUrl("jobs", { ...Object.fromEntries(given), since: range, cursor });
}

/**
 * Return the query with other values of one filter, at its first page.
 *
 * @param {JobQuery} query
 * @param {FilterName} name
 * @param {string[]} given
 * @returns {JobQuery}
 */
export function withFilter(query, name, given) {
  const values = { ...query.values };
  const found = given.filter((value) => value !== "");
  if (found.length > 0) values[name] = found;
  else delete values[name];
  const timed = name === "createdFrom" || name === "createdTo";
  if (!timed && query.range !== null) delete values.createdFrom; // of an earlier page
  return { values, range: timed ? null : query.range, cursor: null };
}

/** @param {JobQuery} query @param {TimeRange | null} range @returns {JobQuery} */
export function withRange({ values: { createdFrom, createdTo, ...values } }, range) {
  return { values, range, cursor: null };
}

/**
 * Return the query of another page. A cursor is valid only for one start of the time range, so URLs
 * beyond the first page contain it.
 *
 * @param {JobQuery} query
 * @param {string | null} cursor
 * @param {Filter} filter of the loaded pages
 * @returns {JobQuery}
 */
export function withCursor(query, cursor, { createdFrom }) {
  if (query.range === null || createdFrom === undefined) return { ...query, cursor };
  const { createdFrom: _, ...values } = query.values;
  const from = cursor === null ? {} : { createdFrom: [String(createdFrom)] };
  return { ...query, values: { ...values, ...from }, cursor };
}

/** Whether any filter is set. @param {JobQuery} query */
export const hasFilters = ({ values, range }) => range !== null || Object.keys(values).length > 0;

/** Return the API filter, without page and cursor. @param {JobQuery} query @returns {Filter} */
export function filterOf({ values, range }) {
  /** @type {Record<string, any>} */
  const filter = {};
  for (const [name, found] of Object.entries(values)) {
    filter[name] = isMultiple(/** @type {FilterName} */ (name)) ? found : found[0];
  }
  if (range !== null && filter.createdFrom === undefined)
    filter.createdFrom = new Date(Date.now() - RANGE_SECONDS[range] * 1000).toISOString();
  return filter;
}

/**
 * Return whether a job still matches the filters whose values can change.
 *
 * @param {JobQuery} query
 * @param {JobSummary} job
 */
export function matches({ values: { state, worker, error } }, job) {
  return (
    (state === undefined || state.includes(job.state)) &&
    (worker === undefined || worker[0] === job.worker) &&
    (error === undefined || error[0] === job.errorCode)
  );
}

/** Describe a query, for confirmation dialogs. @param {JobQuery} query */
export function describe({ values, range }) {
  const parts = Object.entries(values).map(([name, found]) => `${name} ${found.join(" or ")}`);
  if (range !== null) parts.push(`created in the last ${duration(RANGE_SECONDS[range])}`);
  return parts.join(", ");
}
