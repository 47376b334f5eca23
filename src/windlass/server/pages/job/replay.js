/** The log again from any point: what was written until an event, and where the job stood then. */

/** @import { JobModel } from "./model.js" */
/** @import { Stand } from "./stand.js" */

import { Book } from "./book.js";
import { BEGIN, after } from "./stand.js";

const LONGEST = 5000; // milliseconds; a longer silence is cut short

/** How fast it plays. */
export const SPEEDS = /** @type {const} */ (["1", "10", "all"]);

export class Replay {
  /**
   * Events before this one are shown, counted from the first there was; null: the log is live.
   *
   * @type {number | null}
   */
  at = null;
  book = new Book();
  /** @type {Stand} */
  stand = BEGIN;
  playing = false;
  /** @type {typeof SPEEDS[number]} */
  speed = "1";
  #fed = 0;
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
    this.#feed();
    this.changed();
  }

  /** To the event with this number. @param {number} seq */
  seekEvent(seq) {
    const { events } = this.model;
    const found = events.findIndex((event) => event.seq > seq);
    this.seek(this.first + (found < 0 ? events.length : found));
  }

  live() {
    this.pause();
    this.at = null;
    this.book = new Book();
    this.stand = BEGIN;
    this.#fed = 0;
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
    this.#step();
  }

  /** Goes on with the book if it can, else begins it anew. */
  #feed() {
    const at = /** @type {number} */ (this.at);
    if (at < this.#fed || this.#fed < this.first) {
      this.book = new Book();
      this.stand = BEGIN;
      this.#fed = this.first;
    }
    for (; this.#fed < at; this.#fed += 1) {
      const event = this.model.events[this.#fed - this.first];
      this.book.add(event);
      this.stand = after(this.stand, event);
    }
  }

  /**
   * Waits for: as long as passed between two events, or a part of it. Guarantees: each event is
   * shown once, in order. Stops: at the last event, or when it is paused. A crash leaves nothing.
   */
  #step() {
    clearTimeout(this.#timer);
    if (!this.playing || this.at === null) return;
    const { events } = this.model;
    const from = this.at - this.first;
    if (this.speed === "all" || from >= events.length) {
      this.seek(this.last);
      this.pause();
      return;
    }
    const wait = this.#between(from) / Number(this.speed);
    this.#timer = setTimeout(() => {
      let next = from + 1;
      while (next < events.length && this.#between(next) === 0) next += 1; // those came at once
      this.seek(this.first + next);
      this.#step();
    }, wait);
    this.changed();
  }

  /** @param {number} nth */
  #between(nth) {
    const { events } = this.model;
    if (nth < 1 || nth >= events.length) return 0;
    return Math.min(LONGEST, Math.max(0, events[nth].at.getTime() - events[nth - 1].at.getTime()));
  }
}
