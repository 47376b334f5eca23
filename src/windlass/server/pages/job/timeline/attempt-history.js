/** Attempts with their stages and steps, computed from events. */

/** @import { Attempt, JobEvent } from "../../client/windlass.js" */

const MAX_INTERVALS = 200; // stages, and steps, of one attempt

/** @typedef {{ name: string, from: number, until: number | null }} Interval */

/**
 * @typedef {object} TimelineAttempt
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
  /** @type {Map<number, TimelineAttempt>} */
  attempts = new Map();
  /** @type {number | null} */
  #queued = null;
  /** @type {TimelineAttempt | null} */
  #current = null;

  /** @param {JobEvent} event */
  add({ type, data, at, final }) {
    const time = at.getTime();
    if (type === "job-status" && data.status === "queued") this.#queued = time;
    if (type === "job-status" && data.status === "running") this.#start(data, time);
    else if (type === "job-status" && data.status === "retrying")
      this.#end(data.outcome, data, time);
    else if (final) this.#end(OUTCOMES[type], data, time);
    else if (type === "step-progress" && this.#current) this.#progress(this.#current, data, time);
    else if (type === "step-status" && this.#current) this.#step(this.#current, data, time);
  }

  /**
   * Return all attempts, merged with the server's records.
   *
   * @param {Attempt[]} records
   * @returns {TimelineAttempt[]}
   */
  mergedWith(records) {
    const attempts = new Map(records.map((record) => [record.number, attemptOf(record)]));
    for (const [number, attempt] of this.attempts) {
      const record = attempts.get(number);
      attempts.set(
        number,
        record === undefined ? attempt : { ...record, ...merged(record, attempt) },
      );
    }
    return [...attempts.values()].sort((first, second) => first.number - second.number);
  }

  /**
   * @param {Record<string, any>} data
   * @param {number} from
   */
  #start(data, from) {
    this.#current = {
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
    this.attempts.set(this.#current.number, this.#current);
  }

  /**
   * @param {string} outcome
   * @param {Record<string, any>} data
   * @param {number} at
   */
  #end(outcome, data, at) {
    const attempt = this.#current;
    if (attempt === null) return;
    const stage = attempt.stages.at(-1);
    if (stage !== undefined) stage.until ??= at;
    attempt.until = at;
    attempt.outcome = outcome;
    attempt.error = data.errorMessage ?? null;
    this.#current = null;
  }

  /**
   * @param {TimelineAttempt} attempt
   * @param {Record<string, any>} data
   * @param {number} at
   */
  #progress(attempt, data, at) {
    const last = attempt.stages.at(-1);
    if (
      typeof data.stage === "string" &&
      last?.name !== data.stage &&
      attempt.stages.length < MAX_INTERVALS
    ) {
      if (last !== undefined) last.until = at;
      attempt.stages.push({ name: data.stage, from: at, until: null });
    }
    this.#openStep(attempt, data.step, at);
  }

  /**
   * Return the open step of a name. A step starts with its first event.
   *
   * @param {TimelineAttempt} attempt
   * @param {unknown} name
   * @param {number} at
   */
  #openStep(attempt, name, at) {
    if (typeof name !== "string" || attempt.steps.length >= MAX_INTERVALS) return undefined;
    const known = attempt.steps.find((step) => step.name === name && step.until === null);
    if (known !== undefined) return known;
    const before = attempt.steps.at(-1)?.until ?? attempt.from;
    const step = { name, from: Math.min(before, at), until: null };
    attempt.steps.push(step);
    return step;
  }

  /**
   * @param {TimelineAttempt} attempt
   * @param {Record<string, any>} data
   * @param {number} at
   */
  #step(attempt, data, at) {
    /** @type {Interval | undefined} */
    const step = this.#openStep(attempt, data.step, at);
    if (step !== undefined) step.until = at;
  }
}

/**
 * @param {Attempt} record
 * @returns {TimelineAttempt}
 */
const attemptOf = (record) => ({
  number: record.number,
  queued: Date.parse(record.queuedAt),
  from: Date.parse(record.startedAt),
  until: record.endedAt === null ? null : Date.parse(record.endedAt),
  worker: record.worker,
  outcome: record.outcome,
  error: record.error && (record.error.message ?? record.error.code),
  stages: [],
  steps: [],
});

/**
 * Prefer the server's record; stages and steps are only in events.
 *
 * @param {TimelineAttempt} record
 * @param {TimelineAttempt} fromEvents
 */
const merged = (record, fromEvents) => ({
  stages: fromEvents.stages,
  steps: fromEvents.steps,
  until: record.until ?? fromEvents.until,
  outcome: record.outcome ?? fromEvents.outcome,
  error: record.error ?? fromEvents.error,
});
