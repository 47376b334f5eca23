/** Actions on jobs: labels, permissions, and states they apply to. */

/** @import { BulkAction, BulkActionFilter, Filter } from "../client/windlass.js" */
/** @import { JobSummary, Permission, State } from "../client/windlass.js" */
/** @import { Icon } from "../view/icons.js" */

import { may } from "../session.js";
import { CAN } from "../job-state.js";

/** @typedef {BulkAction["action"]} ActionName */

/**
 * @typedef {object} ActionInfo
 * @property {string} name
 * @property {string} doing
 * @property {string} done
 * @property {Icon} icon
 * @property {State[]} states it applies to
 * @property {Permission} permission
 * @property {boolean} danger
 * @property {string} description
 */

/** @type {Record<ActionName, ActionInfo>} */
export const ACTIONS = {
  retry: {
    name: "Retry", doing: "Retrying", done: "Retried", icon: "retry", permission: "produce",
    states: ["failed", "canceled"], danger: false,
    description: "Re-runs each from the start as a new job.",
  },
  resume: {
    name: "Resume", doing: "Resuming", done: "Resumed", icon: "resume", permission: "produce",
    states: ["failed"], danger: false,
    description: "Continues each after its last completed step as a new job.",
  },
  cancel: {
    name: "Cancel", doing: "Canceling", done: "Canceled", icon: "cancel", permission: "produce",
    states: ["created", "queued", "running", "retrying"], danger: true,
    description: "Running jobs are asked to stop and will end as canceled.",
  },
  submit: {
    name: "Submit", doing: "Submitting", done: "Submitted", icon: "external", permission: "produce",
    states: ["created"], danger: false,
    description: "Queues the held jobs.",
  },
  delete: {
    name: "Delete", doing: "Deleting", done: "Deleted", icon: "delete", permission: "delete",
    states: ["succeeded", "failed", "canceled"], danger: true,
    description: "Permanently deletes the jobs and their logs.",
  },
};

const ALL = /** @type {ActionName[]} */ (Object.keys(ACTIONS));

/**
 * Return the actions for some of these jobs.
 *
 * @param {JobSummary[]} jobs
 * @returns {ActionName[]}
 */
export const actionsFor = (jobs) =>
  ALL.filter((action) => may(ACTIONS[action].permission) && jobs.some((job) => CAN[action](job)));

/**
 * Return the actions that may apply to matching jobs.
 *
 * @param {Filter} filter
 * @returns {ActionName[]}
 */
export const actionsForAll = (filter) =>
  ALL.filter((action) => may(ACTIONS[action].permission) && statesFor(filter, action).length > 0);

/** Return whether the user may run any action. */
export const mayAct = () => ALL.some((action) => may(ACTIONS[action].permission));

/** @param {Filter} filter @param {ActionName} action @returns {State[]} */
function statesFor({ state }, action) {
  const { states } = ACTIONS[action];
  const given = state === undefined ? [] : [state].flat();
  return given.length === 0 ? states : states.filter((state) => given.includes(state));
}

/**
 * Return the filter of the matching jobs to which an action applies.
 *
 * @param {Filter} filter
 * @param {ActionName} action
 * @returns {BulkActionFilter}
 */
export function applicableFilter({ cursor, limit, ...filter }, action) {
  const found = /** @type {BulkActionFilter} */ (filter);
  return { ...found, state: statesFor(filter, action) };
}
