/** What this page knows of one job's log: where it is, and the newest events. */

/** @import { JobEvent, Log } from "../windlass.js" */

import { lost } from "./errors.js";
import { seqOf } from "./event.js";

/**
 * Whether an event is the next one of its job. One that was there before is dropped in silence. One
 * that comes too early is dropped and logged, and the connection with it: those that are missing
 * come, in order, with the next. Only a `resync` may leap: what it leaps over is not kept any more.
 *
 * @param {JobEvent} event
 * @param {number} last the seq of the one before
 * @param {Log} log
 */
export function isNext(event, last, log) {
  if (event.seq <= last) {
    log.debug(`windlass: event ${event.seq} of job ${event.jobId} came again, after ${last}; it is dropped`);
    return false;
  }
  if (event.seq === last + 1 || event.type === "resync") return true;
  const said = `event ${event.seq} of job ${event.jobId} came out of order, after ${last}`;
  log.warn(`windlass: ${said}; it is dropped`);
  throw lost(said);
}

export class JobLog {
  /** @type {JobEvent[]} */
  #kept = [];

  /**
   * @param {string | number} after the last event before it begins
   * @param {number} room how many events are kept
   */
  constructor(after, room) {
    this.last = seqOf(after);
    /** What to go on from; nothing at the beginning. */
    this.cursor = this.last === 0 ? undefined : after;
    /** Events beyond this one are kept. */
    this.floor = this.last;
    this.room = room;
    /** Whether an event came; before that, nobody knows whether there is one at the cursor. */
    this.begun = false;
  }

  /** @param {JobEvent} event */
  add(event) {
    this.begun = true;
    this.last = event.seq;
    this.cursor = event.id;
    this.#kept.push(event);
    if (this.#kept.length > this.room) this.floor = this.#kept.shift()?.seq ?? this.floor;
  }

  /**
   * The events beyond this one; null if some of them are not kept.
   *
   * @param {number} seen
   */
  after(seen) {
    if (seen < this.floor) return null;
    let first = this.#kept.length; // from the end: most have seen all but the newest
    while (first > 0 && this.#kept[first - 1].seq > seen) first -= 1;
    return this.#kept.slice(first);
  }
}
