/** Which jobs are asked for: as the address has it, and as the server is asked. */

/** @import { Filter, JobSummary } from "../client/windlass.js" */

import { span } from "../format.js";
import { to } from "../router.js";

/** Of the first, any may fit (of `tag` all must); the others are single. */
const SEVERAL = /** @type {const} */ (["state", "queue", "task", "tag"]);
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

/** @typedef {typeof SEVERAL[number] | typeof SINGLE[number]} Name */
/** @typedef {"hour" | "day" | "week"} Since */

/** Seconds. @type {Record<Since, number>} */
export const SINCE = { hour: 3600, day: 86_400, week: 604_800 };

/**
 * @typedef {object} Wanted
 * @property {Partial<Record<Name, string[]>>} values those that are given
 * @property {Since | null} since
 * @property {string | null} cursor where the page begins; null is the newest
 */

/** @param {URLSearchParams} query @returns {Wanted} */
export function read(query) {
  /** @type {Wanted["values"]} */
  const values = {};
  for (const name of [...SEVERAL, ...SINGLE]) {
    const found = [...new Set(query.getAll(name).filter((one) => one !== ""))];
    if (found.length > 0) values[name] = several(name) ? found : found.slice(0, 1);
  }
  return { values, since: sinceOf(query.get("since")), cursor: query.get("cursor") };
}

/** @param {string | null} text @returns {Since | null} */
export const sinceOf = (text) =>
  text !== null && Object.hasOwn(SINCE, text) ? /** @type {Since} */ (text) : null;

/** @param {Name} name */
const several = (name) => SEVERAL.some((one) => one === name);

/** Its address, the same for the same. @param {Wanted} wanted */
export function address({ values, since, cursor }) {
  const given = [...SEVERAL, ...SINGLE].map((name) => [name, values[name]]);
  return to("jobs", { ...Object.fromEntries(given), since, cursor });
}

/**
 * The same with other values of one filter, from its beginning.
 *
 * @param {Wanted} wanted
 * @param {Name} name
 * @param {string[]} given
 * @returns {Wanted}
 */
export function changed(wanted, name, given) {
  const values = { ...wanted.values };
  const found = given.filter((one) => one !== "");
  if (found.length > 0) values[name] = found;
  else delete values[name];
  const timed = name === "createdFrom" || name === "createdTo";
  if (!timed && wanted.since !== null) delete values.createdFrom; // it was of a page
  return { values, since: timed ? null : wanted.since, cursor: null };
}

/** @param {Wanted} wanted @param {Since | null} since @returns {Wanted} */
export function changedSince({ values: { createdFrom, createdTo, ...values } }, since) {
  return { values, since, cursor: null };
}

/**
 * Another page of the same. The cursors of the server belong to one moment that it looked back from:
 * beyond the first page the address holds it.
 *
 * @param {Wanted} wanted
 * @param {string | null} cursor
 * @param {Filter} filter which the pages were found by
 * @returns {Wanted}
 */
export function turned(wanted, cursor, { createdFrom }) {
  if (wanted.since === null || createdFrom === undefined) return { ...wanted, cursor };
  const { createdFrom: _, ...values } = wanted.values;
  const from = cursor === null ? {} : { createdFrom: [String(createdFrom)] };
  return { ...wanted, values: { ...values, ...from }, cursor };
}

/** Whether any filter is set. @param {Wanted} wanted */
export const narrow = ({ values, since }) => since !== null || Object.keys(values).length > 0;

/** What the server is asked, without page and cursor. @param {Wanted} wanted @returns {Filter} */
export function asked({ values, since }) {
  /** @type {Record<string, any>} */
  const filter = {};
  for (const [name, found] of Object.entries(values)) {
    filter[name] = several(/** @type {Name} */ (name)) ? found : found[0];
  }
  if (since !== null && filter.createdFrom === undefined)
    filter.createdFrom = new Date(Date.now() - SINCE[since] * 1000).toISOString();
  return filter;
}

/**
 * Whether a job still is what was asked for, in what can change.
 *
 * @param {Wanted} wanted
 * @param {JobSummary} job
 */
export function fits({ values: { state, worker, error } }, job) {
  return (
    (state === undefined || state.includes(job.state)) &&
    (worker === undefined || worker[0] === job.worker) &&
    (error === undefined || error[0] === job.errorCode)
  );
}

/** In words, for those who are about to act on all of it. @param {Wanted} wanted */
export function words({ values, since }) {
  const parts = Object.entries(values).map(([name, found]) => `${name} ${found.join(" or ")}`);
  if (since !== null) parts.push(`created in the last ${span(SINCE[since])}`);
  return parts.join(", ");
}
