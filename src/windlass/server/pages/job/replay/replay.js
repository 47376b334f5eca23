/** Replay of the log: lines and job status up to a selected event. */

/** @import { JobModel } from "../model.js" */
/** @import { JobStatus } from "../status.js" */

import { LogLines } from "../log/log-lines.js";
import { INITIAL_STATUS, applyEvent } from "../status.js";

const MAX_PAUSE = 5000; // milliseconds between two events

/** Playback speeds. */
export const SPEEDS = /** @type {const} */ (["1", "10", "all"]);

export class Replay {
  /**
   * Number of events shown, counted from the first event of the job; null: live.
   *
   * @type {number | null}
   */
  at = null;
  logLines = new LogLines();
  /** @type {JobStatus} */
  status = INITIAL_STATUS;
  playing = false;
  /** @type {typeof SPEEDS[number]} */
  speed = "1";
  #applied = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;

  /**
   * @param {JobModel} model
   * @param {() => void} changed
   */
  constructor(model, changed) {
    this.model = model;
    this.changed = changed;
  }

  get on() {
    return this.at !== null;
  }

  get first() {
    return this.model.dropped;
  }

  get last() {
    return this.model.dropped + this.model.events.length;
  }

  /** @param {number} count */
  seek(count) {
    this.at = Math.max(Math.min(count, this.last), Math.min(this.first + 1, this.last));
    this.#applyEvents();
    this.changed();
  }

  /** Seek to the event with this seq. @param {number} seq */
  seekEvent(seq) {
    const { events } = this.model;
    const found = events.findIndex((event) => event.seq > seq);
    this.seek(this.first + (found < 0 ? events.length : found));
  }

  live() {
    this.pause();
    this.at = null;
    this.logLines = new LogLines();
    this.status = INITIAL_STATUS;
    this.#applied = 0;
    this.changed();
  }

  pause() {
    this.playing = false;
    clearTimeout(this.#timer);
    this.changed();
  }

  play() {
    if (this.at === null || this.at >= this.last) this.seek(this.first + 1);
    this.playing = true;
    this.#playNext();
  }

  /** Apply events up to the position; start again when it moved back. */
  #applyEvents() {
    const at = /** @type {number} */ (this.at);
    if (at < this.#applied || this.#applied < this.first) {
      this.logLines = new LogLines();
      this.status = INITIAL_STATUS;
      this.#applied = this.first;
    }
    for (; this.#applied < at; this.#applied += 1) {
      const event = this.model.events[this.#applied - this.first];
      this.logLines.add(event);
      this.status = applyEvent(this.status, event);
    }
  }

  /**
   * Show the next event after the recorded delay, divided by the speed. Stops at the last event, or
   * when paused.
   */
  #playNext() {
    clearTimeout(this.#timer);
    if (!this.playing || this.at === null) return;
    const { events } = this.model;
    const from = this.at - this.first;
    if (this.speed === "all" || from >= events.length) {
      this.seek(this.last);
      this.pause();
      return;
    }
    const wait = this.#delayBefore(from) / Number(this.speed);
    this.#timer = setTimeout(() => {
      let next = from + 1;
      // Show events of the same instant together.
      while (next < events.length && this.#delayBefore(next) === 0) next += 1;
      this.seek(this.first + next);
      this.#playNext();
    }, wait);
    this.changed();
  }

  /** @param {number} nth */
  #delayBefore(nth) {
    const { events } = this.model;
    if (nth < 1 || nth >= events.length) return 0;
    return Math.min(
      MAX_PAUSE,
      Math.max(0, events[nth].at.getTime() - events[nth - 1].at.getTime()),
    );
  }
}
