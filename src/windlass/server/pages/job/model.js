/** Live data of one job: row, attempts, events and status. */

/** @import { Attempt, Job, JobEvent, WindlassError } from "../client/windlass.js" */
/** @import { PageView } from "../page-view.js" */
/** @import { GraphNode } from "../view/dependency-graph.js" */
/** @import { JobStatus } from "./status.js" */

import { live } from "../live/live.js";
import { ended } from "../job-state.js";
import { LogLines } from "./log/log-lines.js";
import { Eta } from "./eta.js";
import { AttemptHistory } from "./timeline/attempt-history.js";
import { INITIAL_STATUS, applyEvent, statusOf } from "./status.js";

const MAX_EVENTS = 100_000; // beyond, the oldest are dropped
const MAX_TEXT = 48_000_000; // characters
const MAX_LINES = 200_000; // an event may have many; browsers limit the height of the scroll box
const DROP_PART = 0.1; // part of the events dropped at a time
const MAX_ARTIFACTS = 1000;
const FAST = 3; // seconds between polls
const SLOW = 15;
const CATCH_UP = 500; // events behind the row
const CATCH_UP_PERIOD = 150; // milliseconds between renderings while catching up
const REFRESH_DELAY = 300; // milliseconds, to combine several refreshes

export class JobModel {
  /** @type {Job | null} */
  job = null;
  /** @type {WindlassError | null} */
  error = null;
  /** @type {Attempt[] | null} */
  attempts = null;
  /** @type {{ jobs: GraphNode[], capped: boolean }} */
  graph = { jobs: [], capped: false };
  /** Data of the artifact events. @type {Record<string, any>[]} */
  artifacts = [];
  /** @type {JobEvent[]} */
  events = [];
  /** Number of dropped events. */
  dropped = 0;
  logLines = new LogLines();
  history = new AttemptHistory();
  eta = new Eta();
  /** Status after the last received event. @type {JobStatus} */
  eventStatus = INITIAL_STATUS;
  #text = 0;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #refreshTimer;
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #renderTimer;

  /**
   * @param {PageView} view
   * @param {string} id
   */
  constructor(view, id) {
    this.view = view;
    this.id = id;
    this.path = `/api/jobs/${encodeURIComponent(id)}`;
    view.onClose(() => {
      clearTimeout(this.#refreshTimer);
      clearTimeout(this.#renderTimer);
    });
    view.onClose(
      live.follow(id, {
        onEvent: (event) => this.#onEvent(event),
        onEnd: () => this.refresh(),
        onError: () => this.refresh(), // its response has the error
      }),
    );
    this.#poll("", SLOW, (answer, error) => {
      this.job = answer ?? this.job;
      this.error = error;
    });
    this.#poll("/attempts", SLOW, (answer) => (this.attempts = answer?.attempts ?? this.attempts));
    const stop = this.#poll("/graph", FAST, (answer) => {
      this.graph = answer ?? this.graph;
      if (answer?.jobs.every((/** @type {GraphNode} */ { state }) => ended(state))) stop();
    });
  }

  /**
   * @param {string} suffix
   * @param {number} seconds
   * @param {(answer: any, error: WindlassError | null) => void} update
   */
  #poll(suffix, seconds, update) {
    const stop = live.poll(this.path + suffix, seconds, (answer, error) => {
      update(answer, error);
      this.view.changed();
    });
    this.view.onClose(stop);
    return stop;
  }

  /** The newer of event status and row status. @returns {JobStatus} */
  get status() {
    if (this.job === null || this.eventStatus.seq >= this.job.seq) return this.eventStatus;
    return statusOf(this.job);
  }

  /** The job with its current status. @returns {Job} */
  get now() {
    const job = /** @type {Job} */ (this.job);
    const { state, percent, stage, phase, attempt, worker, cancelRequested } = this.status;
    return { ...job, state, percent, stage, phase, attempt, worker, cancelRequested };
  }

  /** The job does not exist, or its id is invalid. */
  get gone() {
    const status = this.error?.status;
    return status === 404 || (status === 422 && this.job === null);
  }

  /** Reload row, attempts and graph after a short delay. */
  refresh() {
    this.#refreshTimer ??= setTimeout(() => {
      this.#refreshTimer = undefined;
      for (const suffix of ["", "/attempts", "/graph", "/why"]) live.refresh(this.path + suffix);
    }, REFRESH_DELAY);
  }

  /** @param {JobEvent} event */
  #onEvent(event) {
    this.events.push(event);
    this.#text += textSize(event);
    this.logLines.add(event);
    this.history.add(event);
    this.eta.add(event);
    if (event.type === "artifact" && this.artifacts.length < MAX_ARTIFACTS)
      this.artifacts.push(event.data);
    const before = this.eventStatus;
    const now = (this.eventStatus = applyEvent(before, event));
    const changed = now.state !== before.state || now.cancelRequested !== before.cancelRequested;
    if (changed && (this.job === null || event.seq > this.job.seq || ended(now.state)))
      this.refresh();
    while (this.#full) this.#dropOldest();
    this.#scheduleRender();
  }

  get #full() {
    const { events, logLines } = this;
    const large = this.#text > MAX_TEXT || logLines.lines.length > MAX_LINES;
    return events.length > MAX_EVENTS || (large && events.length > 1);
  }

  /** Whether many earlier events have not arrived yet. */
  get catchingUp() {
    return this.job !== null && this.job.seq - this.eventStatus.seq > CATCH_UP;
  }

  /** Render with the next frame, or less often while catching up. */
  #scheduleRender() {
    if (!this.catchingUp) this.view.changed();
    else
      this.#renderTimer ??= setTimeout(() => {
        this.#renderTimer = undefined;
        this.view.changed();
      }, CATCH_UP_PERIOD);
  }

  #dropOldest() {
    const count = Math.ceil(this.events.length * DROP_PART);
    for (const event of this.events.splice(0, count)) this.#text -= textSize(event);
    this.dropped += count;
    this.logLines.dropBefore(this.events[0]?.seq ?? 0);
  }
}

/** Return the approximate size in characters. @param {JobEvent} event */
function textSize({ data }) {
  let sum = 200;
  for (const value of Object.values(data)) {
    if (typeof value === "string") sum += value.length;
    else if (typeof value === "object" && value !== null) sum += JSON.stringify(value).length;
  }
  return sum;
}
