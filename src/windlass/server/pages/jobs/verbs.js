/** What can be done to jobs: to which of them, by whom, and in which words. */

/** @import { Action, Filter, ActionFilter, JobSummary, State } from "../client/windlass.js" */
/** @import { Icon } from "../view/icons.js" */
/** @import { Right } from "../session.js" */

import { may } from "../session.js";
import { CAN } from "../view/parts.js";

/** @typedef {Action["action"]} Verb */

/**
 * @typedef {object} Saying
 * @property {string} name
 * @property {string} doing
 * @property {string} done
 * @property {Icon} icon
 * @property {State[]} states of jobs to which it can be done
 * @property {Right} right
 * @property {boolean} danger
 * @property {string} means
 */

/** @type {Record<Verb, Saying>} */
export const VERBS = {
  retry: {
    name: "Retry", doing: "Retrying", done: "Retried", icon: "retry", right: "produce",
    states: ["failed", "canceled"], danger: false,
    means: "Each is done again from its beginning, as a new job.",
  },
  resume: {
    name: "Resume", doing: "Resuming", done: "Resumed", icon: "resume", right: "produce",
    states: ["failed"], danger: false,
    means: "Each goes on after the last step that it completed, as a new job.",
  },
  cancel: {
    name: "Cancel", doing: "Canceling", done: "Canceled", icon: "cancel", right: "produce",
    states: ["created", "queued", "running", "retrying"], danger: true,
    means: "Those that run are told to stop, and end as canceled whatever they do.",
  },
  submit: {
    name: "Submit", doing: "Submitting", done: "Submitted", icon: "out", right: "produce",
    states: ["created"], danger: false,
    means: "Those that were held are queued.",
  },
  delete: {
    name: "Delete", doing: "Deleting", done: "Deleted", icon: "delete", right: "remove",
    states: ["succeeded", "failed", "canceled"], danger: true,
    means: "They are gone for good, with their logs.",
  },
};

const ALL = /** @type {Verb[]} */ (Object.keys(VERBS));

/** What this person may do to some of these jobs. @param {JobSummary[]} jobs @returns {Verb[]} */
export const verbsFor = (jobs) =>
  ALL.filter((verb) => may(VERBS[verb].right) && jobs.some((job) => CAN[verb](job)));

/** What they may do to all that match. @param {Filter} filter @returns {Verb[]} */
export const verbsForAll = (filter) =>
  ALL.filter((verb) => may(VERBS[verb].right) && statesFor(filter, verb).length > 0);

/** Whether there is anything that they may do. */
export const mayAct = () => ALL.some((verb) => may(VERBS[verb].right));

/** @param {Filter} filter @param {Verb} verb @returns {State[]} */
function statesFor({ state }, verb) {
  const { states } = VERBS[verb];
  const given = state === undefined ? [] : [state].flat();
  return given.length === 0 ? states : states.filter((one) => given.includes(one));
}

/**
 * Of all that match, those to which it can be done.
 *
 * @param {Filter} filter
 * @param {Verb} verb
 * @returns {ActionFilter}
 */
export function narrowed({ cursor, limit, ...filter }, verb) {
  const found = /** @type {ActionFilter} */ (filter);
  return { ...found, state: statesFor(filter, verb) };
}
