/** Cursor and newest events of one job's log. */

/** @import { JobEvent, Log } from "../../windlass.js" */

import { connectionError } from "../errors.js";
import { seqOf } from "./job-event.js";

/**
 * Return whether an event is the next one of its job. Drops a duplicate. Throws when events are
 * missing before it: the connection closes, and the next one delivers them in order. Only `resync`
 * may skip events, because the server no longer has them.
 *
 * @param {JobEvent} event
 * @param {number} last seq of the previous event
 * @param {Log} log
 */
export function isNext(event, last, log) {
  if (event.seq <= last) {
    log.debug(`windlass: dropped duplicate event ${event.seq} of job ${event.jobId} after ${last}`);
    return false;
  }
  if (event.seq === last + 1 || event.type === "resync") return true;
  const problem = `event ${event.seq} of job ${event.jobId} is out of order, after ${last}`;
  log.warn(`windlass: dropped: ${problem}`);
  throw connectionError(problem);
}

export class EventBuffer {
  /** @type {JobEvent[]} */
  #events = [];

  /**
   * @param {string | number} after the last event before the first one here
   * @param {number} capacity in events
   */
  constructor(after, capacity) {
    this.last = seqOf(after);
    /** Where the next connection continues; undefined at the start of the log. */
    this.cursor = this.last === 0 ? undefined : after;
    /** The buffer holds the events after this seq. */
    this.floor = this.last;
    this.capacity = capacity;
    /** Whether an event arrived. Until then, the cursor may be unknown to the server. */
    this.started = false;
  }

  /** @param {JobEvent} event */
  add(event) {
    this.started = true;
    this.last = event.seq;
    this.cursor = event.id;
    this.#events.push(event);
    if (this.#events.length > this.capacity) this.floor = this.#events.shift()?.seq ?? this.floor;
  }

  /**
   * Return the events after this seq, or null if the buffer no longer holds all of them.
   *
   * @param {number} seen
   */
  after(seen) {
    if (seen < this.floor) return null;
    // Search from the end: most subscribers miss only the newest events.
    let first = this.#events.length;
    while (first > 0 && this.#events[first - 1].seq > seen) first -= 1;
    return this.#events.slice(first);
  }
}
