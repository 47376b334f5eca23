/** Attempts with their stages and steps, computed from events. */

/** @import { Attempt, JobEvent } from "../../client/windlass.js" */

const MAX_INTERVALS = 200; // stages, and steps, of one attempt

/** @typedef {{ name: string, from: number, until: number | null }} Interval */

/**
 * @typedef {object} Run
 * @property {number} number
 * @property {number | null} queued
 * @property {number} from
 * @property {number | null} until
 * @property {string | null} worker
 * @property {string | null} outcome
 * @property {string | null} error
 * @property {Interval[]} stages
 * @property {Interval[]} steps
 */

const OUTCOMES = /** @type {Record<string, string>} */ ({
  "job-completed": "succeed",
  "job-failed": "fail",
  "job-cancelled": "cancel",
});

export class AttemptHistory {
  /** @type {Map<number, Run>} */
  runs = new Map();
  /** @type {number | null} */
  #queued = null;
  /** @type {Run | null} */
  #run = null;

  /** @param {JobEvent} event */
  add({ type, data, at, final }) {
    const time = at.getTime();
    if (type === "job-status" && data.status === "queued") this.#queued = time;
    if (type === "job-status" && data.status === "running") this.#start(data, time);
    else if (type === "job-status" && data.status === "retrying")
      this.#end(data.outcome, data, time);
    else if (final) this.#end(OUTCOMES[type], data, time);
    else if (type === "step-progress" && this.#run) this.#progress(this.#run, data, time);
    else if (type === "step-status" && this.#run) this.#step(this.#run, data, time);
  }

  /**
   * Return all attempts, merged with the server's records.
   *
   * @param {Attempt[]} records
   * @returns {Run[]}
   */
  mergedWith(records) {
    const runs = new Map(records.map((one) => [one.number, runOf(one)]));
    for (const [number, run] of this.runs) {
      const one = runs.get(number);
      runs.set(number, one === undefined ? run : { ...one, ...merged(one, run) });
    }
    return [...runs.values()].sort((one, other) => one.number - other.number);
  }

  /**
   * @param {Record<string, any>} data
   * @param {number} from
   */
  #start(data, from) {
    this.#run = {
      number: Number(data.attempt) || 0,
      queued: this.#queued,
      from,
      until: null,
      worker: data.worker ?? null,
      outcome: null,
      error: null,
      stages: [],
      steps: [],
    };
    this.runs.set(this.#run.number, this.#run);
  }

  /**
   * @param {string} outcome
   * @param {Record<string, any>} data
   * @param {number} at
   */
  #end(outcome, data, at) {
    const run = this.#run;
    if (run === null) return;
    const stage = run.stages.at(-1);
    if (stage !== undefined) stage.until ??= at;
    run.until = at;
    run.outcome = outcome;
    run.error = data.errorMessage ?? null;
    this.#run = null;
  }

  /**
   * @param {Run} run
   * @param {Record<string, any>} data
   * @param {number} at
   */
  #progress(run, data, at) {
    const last = run.stages.at(-1);
    if (
      typeof data.stage === "string" &&
      last?.name !== data.stage &&
      run.stages.length < MAX_INTERVALS
    ) {
      if (last !== undefined) last.until = at;
      run.stages.push({ name: data.stage, from: at, until: null });
    }
    this.#openStep(run, data.step, at);
  }

  /**
   * Return the open step of a name. A step starts with its first event.
   *
   * @param {Run} run
   * @param {unknown} name
   * @param {number} at
   */
  #openStep(run, name, at) {
    if (typeof name !== "string" || run.steps.length >= MAX_INTERVALS) return undefined;
    const known = run.steps.find((one) => one.name === name && one.until === null);
    if (known !== undefined) return known;
    const before = run.steps.at(-1)?.until ?? run.from;
    const step = { name, from: Math.min(before, at), until: null };
    run.steps.push(step);
    return step;
  }

  /**
   * @param {Run} run
   * @param {Record<string, any>} data
   * @param {number} at
   */
  #step(run, data, at) {
    /** @type {Interval | undefined} */
    const step = this.#openStep(run, data.step, at);
    if (step !== undefined) step.until = at;
  }
}

/**
 * @param {Attempt} one
 * @returns {Run}
 */
const runOf = (one) => ({
  number: one.number,
  queued: Date.parse(one.queuedAt),
  from: Date.parse(one.startedAt),
  until: one.endedAt === null ? null : Date.parse(one.endedAt),
  worker: one.worker,
  outcome: one.outcome,
  error: one.error && (one.error.message ?? one.error.code),
  stages: [],
  steps: [],
});

/**
 * Prefer the server's record; stages and steps are only in events.
 *
 * @param {Run} record
 * @param {Run} fromEvents
 */
const merged = (record, fromEvents) => ({
  stages: fromEvents.stages,
  steps: fromEvents.steps,
  until: record.until ?? fromEvents.until,
  outcome: record.outcome ?? fromEvents.outcome,
  error: record.error ?? fromEvents.error,
});
