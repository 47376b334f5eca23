/** What surrounds jobs: queues, workers, tasks, flows, numbers over time, schedules. */

/** @import * as types from "../windlass.js" */
/** @import { Http } from "./http.js" */

export class Surroundings {
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
    return this.http.request("POST", `${queue(name)}/pause`, { ...options, repeat: true });
  }

  /**
   * @param {string} name
   * @param {types.Options} [options]
   * @returns {Promise<{ name: string, paused: boolean }>}
   */
  resumeQueue(name, options = {}) {
    return this.http.request("POST", `${queue(name)}/resume`, { ...options, repeat: true });
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
   * @param {{ since?: string | Date, limit?: number, group?: string }} [asked]
   * @param {types.Options} [options]
   * @returns {Promise<types.Failures>}
   */
  failures({ since, limit, group } = {}, options = {}) {
    const query = { since, limit, group };
    return this.http.request("GET", "/api/failures", { query, ...options });
  }

  /**
   * @param {{ limit?: number, cursor?: string | null }} [asked]
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
    const asked = { query: { limit }, signal };
    return this.http.request("GET", flow(id), asked);
  }

  /**
   * @param {string} id
   * @param {types.CancelOptions} [options]
   * @returns {Promise<types.FlowActed>}
   */
  cancelFlow(id, { reason, signal } = {}) {
    return this.http.request("POST", `${flow(id)}/cancel`, { body: { reason }, repeat: true, signal });
  }

  /**
   * @param {string} id
   * @param {types.Options} [options]
   * @returns {Promise<types.FlowActed>}
   */
  retryFlow(id, options = {}) {
    return this.http.request("POST", `${flow(id)}/retry`, options);
  }

  /**
   * @param {string} id
   * @param {types.Options} [options]
   * @returns {Promise<types.FlowActed>}
   */
  resumeFlow(id, options = {}) {
    return this.http.request("POST", `${flow(id)}/resume`, options);
  }

  /**
   * @param {types.Options} [options]
   * @returns {Promise<types.Limit[]>}
   */
  async limits(options) {
    return (await this.http.request("GET", "/api/limits", options)).limits;
  }

  /**
   * @param {types.StatsAsked} [asked]
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
    return this.http.request("GET", schedule(name), options);
  }

  /**
   * @param {types.NewSchedule} asked
   * @param {types.Options} [options]
   * @returns {Promise<types.Schedule>}
   */
  addSchedule(asked, options = {}) {
    return this.http.request("POST", "/api/schedules", { body: asked, ...options });
  }

  /**
   * @param {string} name
   * @param {types.Options} [options]
   * @returns {Promise<types.Schedule>}
   */
  pauseSchedule(name, options = {}) {
    return this.http.request("POST", `${schedule(name)}/pause`, { ...options, repeat: true });
  }

  /**
   * @param {string} name
   * @param {types.Options} [options]
   * @returns {Promise<types.Schedule>}
   */
  resumeSchedule(name, options = {}) {
    return this.http.request("POST", `${schedule(name)}/resume`, { ...options, repeat: true });
  }

  /**
   * @param {string} name
   * @param {types.Options} [options]
   * @returns {Promise<types.EnqueuedJob>}
   */
  runSchedule(name, options = {}) {
    return this.http.request("POST", `${schedule(name)}/run`, options);
  }

  /**
   * @param {string} name
   * @param {types.Options} [options]
   * @returns {Promise<void>}
   */
  async deleteSchedule(name, options = {}) {
    await this.http.request("DELETE", schedule(name), options);
  }
}

const flow = (/** @type {string} */ id) => `/api/flows/${encodeURIComponent(id)}`;
const queue = (/** @type {string} */ name) => `/api/queues/${encodeURIComponent(name)}`;
const schedule = (/** @type {string} */ name) => `/api/schedules/${encodeURIComponent(name)}`;
