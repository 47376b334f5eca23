/** What a program holds: every verb of the server, and what happens to jobs as it happens. */

/** @import * as types from "../windlass.js" */

import { Feeds } from "./feeds.js";
import { Following } from "./following.js";
import { Http } from "./http.js";
import { JobHandle } from "./job.js";
import { Live } from "./live.js";
import { Surroundings } from "./surroundings.js";
import { systemTimers } from "./waiting.js";

const KEEPALIVE = 10_000; // milliseconds between two comments of the server

/** Where a broken line that mends itself is no news, and Node would write it to standard output. */
const quietConsole = {
  debug() {},
  warn: (/** @type {unknown[]} */ ...said) => console.warn(...said),
  error: (/** @type {unknown[]} */ ...said) => console.error(...said),
};

export class Windlass extends Surroundings {
  #context;
  #keep;
  #following;

  /** @param {types.WindlassOptions} [options] */
  constructor(options = {}) {
    const { timers = systemTimers, log = quietConsole, keep = 512, backoff = {} } = options;
    const http = new Http({
      url: checked(options.url ?? globalThis.location?.origin),
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
    this.#following = new Following(this.#context, new Feeds(this.#context, keep));
  }

  /**
   * A key of its own goes with the request, so that a repeat of it makes no second job.
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
      repeat: true,
      signal,
    });
    // A job with a key that was made here was made by this call, if not by the first try of it.
    return requestId === undefined && job.requestId === key ? { ...job, duplicate: false } : job;
  }

  /**
   * @param {types.NewJob[]} jobs
   * @param {types.BatchOptions} [options]
   * @returns {Promise<types.BatchAnswer[]>}
   */
  async batch(jobs, { signal, requestId = randomKey() } = {}) {
    const headers = { "Idempotency-Key": requestId };
    const asked = { body: { jobs }, headers, repeat: true, signal };
    return (await this.http.request("POST", "/api/jobs/batch", asked)).answers;
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
   * @param {types.Action} action
   * @param {types.Options} [options]
   * @returns {Promise<types.ActionAnswer>}
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
    return this.http.request("GET", of(id), options);
  }

  /**
   * @param {string} id
   * @param {types.Options} [options]
   * @returns {Promise<types.Attempt[]>}
   */
  async attempts(id, options = {}) {
    return (await this.http.request("GET", `${of(id)}/attempts`, options)).attempts;
  }

  /**
   * @param {string} id
   * @param {types.Options} [options]
   * @returns {Promise<types.Graph>}
   */
  graph(id, options = {}) {
    return this.http.request("GET", `${of(id)}/graph`, options);
  }

  /**
   * @param {string} id
   * @param {types.Options} [options]
   * @returns {Promise<types.Why>}
   */
  why(id, options = {}) {
    return this.http.request("GET", `${of(id)}/why`, options);
  }

  /**
   * @param {string} id
   * @param {types.CancelOptions} [options]
   * @returns {Promise<types.CancelAnswer>}
   */
  cancel(id, { reason, signal } = {}) {
    const asked = { body: { reason }, repeat: true, signal };
    return this.http.request("POST", `${of(id)}/cancel`, asked);
  }

  /**
   * @param {string} id
   * @param {types.Options} [options]
   * @returns {Promise<types.Moved>}
   */
  submit(id, options = {}) {
    return this.http.request("POST", `${of(id)}/submit`, options);
  }

  /**
   * A finished job has at most one retry that is active: a repeat finds it.
   *
   * @param {string} id
   * @param {types.Options} [options]
   * @returns {Promise<types.EnqueuedJob>}
   */
  retry(id, options = {}) {
    return this.http.request("POST", `${of(id)}/retry`, { ...options, repeat: true });
  }

  /**
   * @param {string} id
   * @param {types.Options} [options]
   * @returns {Promise<types.EnqueuedJob>}
   */
  resume(id, options = {}) {
    return this.http.request("POST", `${of(id)}/resume`, { ...options, repeat: true });
  }

  /**
   * @param {string} id
   * @param {types.Options} [options]
   * @returns {Promise<void>}
   */
  async delete(id, options = {}) {
    await this.http.request("DELETE", of(id), options);
  }

  /**
   * @param {string} id
   * @param {types.EventsOptions} [options]
   */
  events(id, options) {
    return this.#following.events(id, options);
  }

  /**
   * @param {string} id
   * @param {types.FollowOptions} options
   */
  follow(id, options) {
    return this.#following.follow(id, options);
  }

  /**
   * @param {Record<string, string | number>} jobs
   * @param {types.FollowOptions} options
   */
  followMany(jobs, options) {
    return this.#following.followMany(jobs, options);
  }

  /**
   * @param {types.ListFilter} filter
   * @param {(snapshot: types.Snapshot) => unknown} callback
   * @param {types.WatchOptions} [options]
   */
  watch(filter, callback, options) {
    return this.#following.watch(filter, callback, options);
  }

  /** @returns {types.Live} */
  live() {
    return new Live(this.#context, this.#keep);
  }

  /**
   * @param {string} method
   * @param {string} path
   * @param {types.Asked} [asked]
   * @returns {Promise<any>}
   */
  request(method, path, asked) {
    return this.http.request(method, path, asked);
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

const of = (/** @type {string} */ id) => `/api/jobs/${encodeURIComponent(id)}`;

/** @param {string | undefined} url */
function checked(url) {
  if (url !== undefined) return url;
  throw new TypeError('where is the server? new Windlass({ url: "http://localhost:8642" })');
}

/** 128 random bits. (crypto.randomUUID is there for pages from https and this machine only.) */
function randomKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
