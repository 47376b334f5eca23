/** Job counts of queues. */

/** @import { Queue } from "../client/windlass.js" */

/** @param {Queue} queue */
export const queuedCount = (queue) => queue.counts.queued ?? 0;

/**
 * Return whether a count is a lower bound.
 *
 * @param {Queue[]} queues
 * @param {"queued" | "running"} state
 */
export const isCapped = (queues, state) => queues.some((queue) => queue.capped.includes(state));
