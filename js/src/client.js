/** The client class: requests to the server, and event streams of jobs. */

/** @import * as types from "../windlass.js" */

import { Feeds } from "./streaming/feeds.js";
import { Subscriptions } from "./streaming/subscriptions.js";
import { Http } from "./http.js";
import { JobHandle } from "./job-handle.js";
import { LiveConnection } from "./streaming/live-connection.js";
import { ManagementClient } from "./management-client.js";
import { systemTimers } from "./timers.js";

const KEEPALIVE = 10_000; // milliseconds between keepalive comments of the server

/** Drops debug messages: reconnects are routine, and Node prints them to standard output. */
const quietConsole = {
  debug() {},
  warn: (/** @type {unknown[]} */ ...values) => console.warn(...values),
  error: (/** @type {unknown[]} */ ...values) => console.error(...values),
};

export class Windlass extends ManagementClient {
  #context;
  #keep;
  #subscriptions;

  /** @param {types.WindlassOptions} [options] */
  constructor(options = {}) {
    const { timers = systemTimers, log = quietConsole, keep = 512, backoff = {} } = options;
    const http = new Http({
      url: requireUrl(options.url ?? globalThis.location?.origin),
      key: options.key ?? null,
      fetch: options.fetch ?? ((input, init) => globalThis.fetch(input, init)),
      timeout: options.timeout ?? 30_000,
      retries: options.retries ?? 3,
      timers,
      log,
    });
    super(http);
    const silence = 2.5 * (options.keepalive ?? KEEPALIVE);
    this.#context = { http, timers, log, backoff, silence };
    this.#keep = keep;
    this.#subscriptions = new Subscriptions(this.#context, new Feeds(this.#context, keep));
  }

  /**
   * Sends an Idempotency-Key, so that a retry creates no second job.
   *
   * @param {string} task
   * @param {Record<string, unknown>} [args]
   * @param {types.EnqueueOptions} [options]
   * @returns {Promise<types.EnqueuedJob>}
   */
  async enqueue(task, args = {}, { signal, requestId, ...options } = {}) {
    const key = requestId ?? randomKey();
    const job = await this.http.request("POST", "/api/jobs", {
      body: { task, arguments: args, ...options },
      headers: { "Idempotency-Key": key },
      idempotent: true,
      signal,
    });
    // The key is random, so a job with this key was created by this call, perhaps by its first try.
    return requestId === undefined && job.requestId === key ? { ...job, duplicate: false } : job;
  }

  /**
   * @param {types.NewJob[]} jobs
   * @param {types.BatchOptions} [options]
   * @returns {Promise<types.BatchResult[]>}
   */
  async batch(jobs, { signal, requestId = randomKey() } = {}) {
    const headers = { "Idempotency-Key": requestId };
    const request = { body: { jobs }, headers, idempotent: true, signal };
    return (await this.http.request("POST", "/api/jobs/batch", request)).results;
  }

  /**
   * @param {types.Filter} [filter]
   * @param {types.Options} [options]
   * @returns {Promise<types.JobPage>}
   */
  page(filter = {}, options = {}) {
    return this.http.request("GET", "/api/jobs", { query: filter, ...options });
  }

  /**
   * @param {types.Filter} [filter]
   * @param {types.Options} [options]
   * @returns {AsyncGenerator<types.JobSummary, void, void>}
   */
  async *list(filter = {}, options = {}) {
    let { cursor = null } = filter;
    do {
      const page = await this.page({ ...filter, cursor }, options);
      yield* page.jobs;
      cursor = page.cursor;
    } while (cursor !== null);
  }

  /**
   * @param {types.Filter} [filter]
   * @param {types.Options} [options]
   * @returns {Promise<types.Count>}
   */
  count(filter = {}, options = {}) {
    return this.http.request("GET", "/api/jobs/count", { query: filter, ...options });
  }

  /**
   * @param {types.BulkAction} action
   * @param {types.Options} [options]
   * @returns {Promise<types.BulkActionResult>}
   */
  actions(action, options = {}) {
    return this.http.request("POST", "/api/jobs/actions", { body: action, ...options });
  }

  /** @param {string} id */
  job(id) {
    return new JobHandle(this, id);
  }

  /**
   * @param {string} id
   * @param {types.Options} [options]
   * @returns {Promise<types.Job>}
   */
  get(id, options = {}) {
    return this.http.request("GET", jobPath(id), options);
  }

  /**
   * @param {string} id
   * @param {types.Options} [options]
   * @returns {Promise<types.Attempt[]>}
   */
  async attempts(id, options = {}) {
    return (await this.http.request("GET", `${jobPath(id)}/attempts`, options)).attempts;
  }

  /**
   * @param {string} id
   * @param {types.Options} [options]
   * @returns {Promise<types.Graph>}
   */
  graph(id, options = {}) {
    return this.http.request("GET", `${jobPath(id)}/graph`, options);
  }

  /**
   * @param {string} id
   * @param {types.Options} [options]
   * @returns {Promise<types.Diagnosis>}
   */
  why(id, options = {}) {
    return this.http.request("GET", `${jobPath(id)}/why`, options);
  }

  /**
   * @param {string} id
   * @param {types.CancelOptions} [options]
   * @returns {Promise<types.CancelResult>}
   */
  cancel(id, { reason, signal } = {}) {
    const request = { body: { reason }, idempotent: true, signal };
    return this.http.request("POST", `${jobPath(id)}/cancel`, request);
  }

  /**
   * @param {string} id
   * @param {types.Options} [options]
   * @returns {Promise<types.SubmitResult>}
   */
  submit(id, options = {}) {
    return this.http.request("POST", `${jobPath(id)}/submit`, options);
  }

  /**
   * Safe to send twice: a finished job has at most one active retry, and a second call returns it.
   *
   * @param {string} id
   * @param {types.Options} [options]
   * @returns {Promise<types.EnqueuedJob>}
   */
  retry(id, options = {}) {
    return this.http.request("POST", `${jobPath(id)}/retry`, { ...options, idempotent: true });
  }

  /**
   * @param {string} id
   * @param {types.Options} [options]
   * @returns {Promise<types.EnqueuedJob>}
   */
  resume(id, options = {}) {
    return this.http.request("POST", `${jobPath(id)}/resume`, { ...options, idempotent: true });
  }

  /**
   * @param {string} id
   * @param {types.Options} [options]
   * @returns {Promise<void>}
   */
  async delete(id, options = {}) {
    await this.http.request("DELETE", jobPath(id), options);
  }

  /**
   * @param {string} id
   * @param {types.EventsOptions} [options]
   */
  events(id, options) {
    return this.#subscriptions.events(id, options);
  }

  /**
   * @param {string} id
   * @param {types.FollowOptions} options
   */
  follow(id, options) {
    return this.#subscriptions.follow(id, options);
  }

  /**
   * @param {Record<string, string | number>} jobs
   * @param {types.FollowOptions} options
   */
  followMany(jobs, options) {
    return this.#subscriptions.followMany(jobs, options);
  }

  /**
   * @param {types.ListFilter} filter
   * @param {(snapshot: types.Snapshot) => unknown} callback
   * @param {types.WatchOptions} [options]
   */
  watch(filter, callback, options) {
    return this.#subscriptions.watch(filter, callback, options);
  }

  /** @returns {types.LiveConnection} */
  live() {
    return new LiveConnection(this.#context, this.#keep);
  }

  /**
   * @param {string} method
   * @param {string} path
   * @param {types.RequestOptions} [options]
   * @returns {Promise<any>}
   */
  request(method, path, options) {
    return this.http.request(method, path, options);
  }

  /**
   * @param {string} id
   * @param {types.Options} [options]
   */
  async wait(id, options = {}) {
    const job = await this.get(id, options);
    if (job.endedAt !== null) return job;
    for await (const _ of this.events(id, { ...options, after: job.seq }));
    return this.get(id, options);
  }
}

const jobPath = (/** @type {string} */ id) => `/api/jobs/${encodeURIComponent(id)}`;

/** @param {string | undefined} url */
function requireUrl(url) {
  if (url !== undefined) return url;
  throw new TypeError('url is required: new Windlass({ url: "http://localhost:8642" })');
}

/** Return 128 random bits as hex. (crypto.randomUUID exists only on https pages and localhost.) */
function randomKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
