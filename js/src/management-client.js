/** Base class of `Windlass`: methods for queues, workers, tasks, failures, flows, limits, statistics and schedules. */

/** @import * as types from "../windlass.js" */
/** @import { Http } from "./http.js" */

export class ManagementClient {
  /** @param {Http} http */
  constructor(http) {
    this.http = http;
  }

  /**
   * @param {types.Options} [options]
   * @returns {Promise<types.Queue[]>}
   */
  async queues(options) {
    return (await this.http.request("GET", "/api/queues", options)).queues;
  }

  /**
   * @param {string} name
   * @param {types.Options} [options]
   * @returns {Promise<{ name: string, paused: boolean }>}
   */
  pauseQueue(name, options = {}) {
    return this.http.request("POST", `${queuePath(name)}/pause`, { ...options, idempotent: true });
  }

  /**
   * @param {string} name
   * @param {types.Options} [options]
   * @returns {Promise<{ name: string, paused: boolean }>}
   */
  resumeQueue(name, options = {}) {
    return this.http.request("POST", `${queuePath(name)}/resume`, { ...options, idempotent: true });
  }

  /**
   * @param {types.Options} [options]
   * @returns {Promise<types.Worker[]>}
   */
  async workers(options) {
    return (await this.http.request("GET", "/api/workers", options)).workers;
  }

  /**
   * @param {types.Options} [options]
   * @returns {Promise<types.Task[]>}
   */
  async tasks(options) {
    return (await this.http.request("GET", "/api/tasks", options)).tasks;
  }

  /**
   * @param {{ since?: string | Date, limit?: number, group?: string }} [query]
   * @param {types.Options} [options]
   * @returns {Promise<types.Failures>}
   */
  failures({ since, limit, group } = {}, options = {}) {
    const query = { since, limit, group };
    return this.http.request("GET", "/api/failures", { query, ...options });
  }

  /**
   * @param {{ limit?: number, cursor?: string | null }} [query]
   * @param {types.Options} [options]
   * @returns {Promise<types.FlowPage>}
   */
  flows({ limit, cursor } = {}, options = {}) {
    return this.http.request("GET", "/api/flows", { query: { limit, cursor }, ...options });
  }

  /**
   * @param {string} id
   * @param {types.Options & { limit?: number }} [options]
   * @returns {Promise<types.Flow>}
   */
  flow(id, { limit, signal } = {}) {
    return this.http.request("GET", flowPath(id), { query: { limit }, signal });
  }

  /**
   * @param {string} id
   * @param {types.CancelOptions} [options]
   * @returns {Promise<types.FlowActionResult>}
   */
  cancelFlow(id, { reason, signal } = {}) {
    return this.http.request("POST", `${flowPath(id)}/cancel`, {
      body: { reason },
      idempotent: true,
      signal,
    });
  }

  /**
   * @param {string} id
   * @param {types.Options} [options]
   * @returns {Promise<types.FlowActionResult>}
   */
  retryFlow(id, options = {}) {
    return this.http.request("POST", `${flowPath(id)}/retry`, options);
  }

  /**
   * @param {string} id
   * @param {types.Options} [options]
   * @returns {Promise<types.FlowActionResult>}
   */
  resumeFlow(id, options = {}) {
    return this.http.request("POST", `${flowPath(id)}/resume`, options);
  }

  /**
   * @param {types.Options} [options]
   * @returns {Promise<types.Limit[]>}
   */
  async limits(options) {
    return (await this.http.request("GET", "/api/limits", options)).limits;
  }

  /**
   * @param {types.StatsQuery} [query]
   * @param {types.Options} [options]
   * @returns {Promise<types.Stats>}
   */
  stats({ since, until, step, by } = {}, options = {}) {
    const query = { since, until, step, by };
    return this.http.request("GET", "/api/stats", { query, ...options });
  }

  /**
   * @param {types.Options} [options]
   * @returns {Promise<types.Schedule[]>}
   */
  async schedules(options) {
    return (await this.http.request("GET", "/api/schedules", options)).schedules;
  }

  /**
   * @param {string} name
   * @param {types.Options} [options]
   * @returns {Promise<types.Schedule>}
   */
  getSchedule(name, options) {
    return this.http.request("GET", schedulePath(name), options);
  }

  /**
   * @param {types.NewSchedule} schedule
   * @param {types.Options} [options]
   * @returns {Promise<types.Schedule>}
   */
  addSchedule(schedule, options = {}) {
    return this.http.request("POST", "/api/schedules", { body: schedule, ...options });
  }

  /**
   * @param {string} name
   * @param {types.Options} [options]
   * @returns {Promise<types.Schedule>}
   */
  pauseSchedule(name, options = {}) {
    return this.http.request("POST", `${schedulePath(name)}/pause`, {
      ...options,
      idempotent: true,
    });
  }

  /**
   * @param {string} name
   * @param {types.Options} [options]
   * @returns {Promise<types.Schedule>}
   */
  resumeSchedule(name, options = {}) {
    return this.http.request("POST", `${schedulePath(name)}/resume`, {
      ...options,
      idempotent: true,
    });
  }

  /**
   * @param {string} name
   * @param {types.Options} [options]
   * @returns {Promise<types.EnqueuedJob>}
   */
  runSchedule(name, options = {}) {
    return this.http.request("POST", `${schedulePath(name)}/run`, options);
  }

  /**
   * @param {string} name
   * @param {types.Options} [options]
   * @returns {Promise<void>}
   */
  async deleteSchedule(name, options = {}) {
    await this.http.request("DELETE", schedulePath(name), options);
  }
}

const flowPath = (/** @type {string} */ id) => `/api/flows/${encodeURIComponent(id)}`;
const queuePath = (/** @type {string} */ name) => `/api/queues/${encodeURIComponent(name)}`;
const schedulePath = (/** @type {string} */ name) => `/api/schedules/${encodeURIComponent(name)}`;
