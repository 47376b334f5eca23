/** Events of jobs, made of what the server sends. */

/** @import { JobEvent, SseMessage } from "../windlass.js" */

import { lost } from "./errors.js";

const FINAL = new Set(["job-completed", "job-failed", "job-cancelled"]);

/**
 * The number in an event's id, `{unix ms}-{seq}`, or in a bare number.
 *
 * @param {string | number} cursor
 */
export function seqOf(cursor) {
  const seq = Number(String(cursor).split("-").at(-1));
  if (Number.isSafeInteger(seq) && seq >= 0) return seq;
  throw new TypeError(`${cursor} is not where an event can be: give its seq, or its id`);
}

/**
 * A message on the stream of one job.
 *
 * @param {string} jobId
 * @param {SseMessage} message
 */
export function eventOf(jobId, { type, data, id }) {
  const told = JSON.parse(data);
  if (id === null) throw trouble(type, told);
  return made(id, jobId, type, told);
}

/**
 * An event as JSON tells it, in pages and on the stream of many jobs.
 *
 * @param {any} view
 */
export const eventOfView = (view) => made(view.id, view.jobId, view.type, view.data);

/**
 * @param {string} id
 * @param {string} jobId
 * @param {string} type
 * @param {Record<string, any>} data
 * @returns {JobEvent}
 */
function made(id, jobId, type, data) {
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
 * What is no event of a job: the server says why it ends the stream. To come back may help.
 *
 * @param {string} type
 * @param {{ message?: string }} told
 */
export const trouble = (type, told) =>
  lost(`the server sent ${type}: ${told.message ?? "nothing more"}`);
