/** Conversion of server messages to job events. */

/** @import { JobEvent, SseMessage } from "../../windlass.js" */

import { connectionError } from "../errors.js";

const FINAL = new Set(["job-completed", "job-failed", "job-cancelled"]);

/**
 * Return the seq of an event id (`{unix ms}-{seq}`) or of a plain number.
 *
 * @param {string | number} cursor
 */
export function seqOf(cursor) {
  const seq = Number(String(cursor).split("-").at(-1));
  if (Number.isSafeInteger(seq) && seq >= 0) return seq;
  throw new TypeError(`invalid event cursor ${cursor}: pass the seq or id of an event`);
}

/**
 * Convert a message of a single job's stream.
 *
 * @param {string} jobId
 * @param {SseMessage} message
 */
export function eventFromMessage(jobId, { type, data, id }) {
  const parsed = JSON.parse(data);
  if (id === null) throw serverError(type, parsed);
  return makeEvent(id, jobId, type, parsed);
}

/**
 * Convert the JSON form of an event, as in pages and on streams of several jobs.
 *
 * @param {any} view
 */
export const eventFromJson = (view) => makeEvent(view.id, view.jobId, view.type, view.data);

/**
 * @param {string} id
 * @param {string} jobId
 * @param {string} type
 * @param {Record<string, any>} data
 * @returns {JobEvent}
 */
function makeEvent(id, jobId, type, data) {
  return {
    id,
    seq: seqOf(id),
    at: new Date(Number(id.split("-")[0])),
    type,
    jobId,
    correlationId: data.correlationId ?? null,
    data,
    final: FINAL.has(type),
  };
}

/**
 * Return the error of a message that is no job event: the server says why it closes the stream.
 * A reconnect may help.
 *
 * @param {string} type
 * @param {{ message?: string }} data
 */
export const serverError = (type, data) =>
  connectionError(`the server sent ${type}: ${data.message ?? "no message"}`);
