/** One job, live: its row, its attempts, its events, and where it stands. */

/** @import { Attempt, Job, JobEvent, WindlassError } from "../client/windlass.js" */
/** @import { View } from "../page.js" */
/** @import { GraphNode } from "../view/graph.js" */
/** @import { Stand } from "./stand.js" */

import { live } from "../live/tab.js";
import { ended } from "../view/parts.js";
import { Book } from "./book.js";
import { Eta } from "./eta.js";
import { Past } from "./past.js";
import { BEGIN, after, standing } from "./stand.js";

const MOST_EVENTS = 100_000; // that are kept here; beyond, the oldest are let go
const MOST_TEXT = 48_000_000; // characters
const MOST_LINES = 200_000; // one event may be many, and the box that scrolls can only be so high
const PART = 0.1; // of them at a time
const MOST_ARTIFACTS = 1000;
const OFTEN = 3; // seconds
const SELDOM = 15;
const FAR = 500; // events behind
const SEEN = 150; // milliseconds between two looks at a log that is read
const QUIET = 300; // milliseconds in which several events lead to one question

export class JobModel {
  /** @type {Job | null} */
  job = null;
  /** @type {WindlassError | null} */
  error = null;
  /** @type {Attempt[] | null} */
  attempts = null;
  /** @type {{ jobs: GraphNode[], capped: boolean }} */
  graph = { jobs: [], capped: false };
  /** What the job made, as its events say. @type {Record<string, any>[]} */
  artifacts = [];
  /** @type {JobEvent[]} */
  events = [];
  /** How many of the first events are no longer here. */
  dropped = 0;
  book = new Book();
  past = new Past();
  eta = new Eta();
  /** @type {Stand} */
  heard = BEGIN;
  #text = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #asking;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #showing;

  /**
   * @param {View} view
   * @param {string} id
   */
  constructor(view, id) {
    this.view = view;
    this.id = id;
    this.path = `/api/jobs/${encodeURIComponent(id)}`;
    view.onClose(() => {
      clearTimeout(this.#asking);
      clearTimeout(this.#showing);
    });
    view.onClose(
      live.follow(id, {
        onEvent: (event) => this.#hear(event),
        onEnd: () => this.ask(),
        onError: () => this.ask(), // what is wrong is in the answer to that
      }),
    );
    this.#poll("", SELDOM, (answer, error) => {
      this.job = answer ?? this.job;
      this.error = error;
    });
    this.#poll(
      "/attempts",
      SELDOM,
      (answer) => (this.attempts = answer?.attempts ?? this.attempts),
    );
    const stop = this.#poll("/graph", OFTEN, (answer) => {
      this.graph = answer ?? this.graph;
      if (answer?.jobs.every((/** @type {GraphNode} */ { state }) => ended(state))) stop();
    });
  }

  /**
   * @param {string} what
   * @param {number} seconds
   * @param {(answer: any, error: WindlassError | null) => void} take
   */
  #poll(what, seconds, take) {
    const stop = live.poll(this.path + what, seconds, (answer, error) => {
      take(answer, error);
      this.view.changed();
    });
    this.view.onClose(stop);
    return stop;
  }

  /** Where it stands: by its events, unless they are still on their way. @returns {Stand} */
  get stand() {
    if (this.job === null || this.heard.seq >= this.job.seq) return this.heard;
    return standing(this.job);
  }

  /** The job as it is now, as far as is known. @returns {Job} */
  get now() {
    const job = /** @type {Job} */ (this.job);
    const { state, percent, stage, phase, attempt, worker, stopping } = this.stand;
    return { ...job, state, percent, stage, phase, attempt, worker, cancelRequested: stopping };
  }

  /** There is none, or what names it is no id at all. */
  get gone() {
    const status = this.error?.status;
    return status === 404 || (status === 422 && this.job === null);
  }

  /** The row, the attempts and the graph anew: soon, for several reasons come together. */
  ask() {
    this.#asking ??= setTimeout(() => {
      this.#asking = undefined;
      for (const what of ["", "/attempts", "/graph", "/why"]) live.refresh(this.path + what);
    }, QUIET);
  }

  /** @param {JobEvent} event */
  #hear(event) {
    this.events.push(event);
    this.#text += weigh(event);
    this.book.add(event);
    this.past.add(event);
    this.eta.add(event);
    if (event.type === "artifact" && this.artifacts.length < MOST_ARTIFACTS)
      this.artifacts.push(event.data);
    const { state, stopping } = this.heard;
    this.heard = after(this.heard, event);
    const moved = this.heard.state !== state || this.heard.stopping !== stopping;
    if (moved && (this.job === null || event.seq > this.job.seq || ended(this.heard.state)))
      this.ask();
    while (this.#full) this.#forget();
    this.#show();
  }

  get #full() {
    const { events, book } = this;
    const much = this.#text > MOST_TEXT || book.lines.length > MOST_LINES;
    return events.length > MOST_EVENTS || (much && events.length > 1);
  }

  /** Whether the events of before are still on their way. */
  get reading() {
    return this.job !== null && this.job.seq - this.heard.seq > FAR;
  }

  /** With the next frame; while a long log is read, now and then. */
  #show() {
    if (!this.reading) this.view.changed();
    else
      this.#showing ??= setTimeout(() => {
        this.#showing = undefined;
        this.view.changed();
      }, SEEN);
  }

  #forget() {
    const count = Math.ceil(this.events.length * PART);
    for (const event of this.events.splice(0, count)) this.#text -= weigh(event);
    this.dropped += count;
    this.book.dropBefore(this.events[0]?.seq ?? 0);
  }
}

/** Characters, more or less. @param {JobEvent} event */
function weigh({ data }) {
  let sum = 200;
  for (const value of Object.values(data)) {
    if (typeof value === "string") sum += value.length;
    else if (typeof value === "object" && value !== null) sum += JSON.stringify(value).length;
  }
  return sum;
}
