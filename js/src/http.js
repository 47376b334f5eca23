/** HTTP requests with JSON bodies, problem+json errors, and retries of idempotent requests. */

/** @import { Log, Query, Timers } from "../windlass.js" */

import { WindlassError, connectionError, responseError } from "./errors.js";
import { linkedController } from "./abort.js";
import { Backoff } from "./backoff.js";
import { sleep } from "./timers.js";

/**
 * @typedef {object} HttpOptions
 * @property {string} url
 * @property {string | null} key
 * @property {typeof fetch} fetch
 * @property {Timers} timers
 * @property {Log} log
 * @property {number} timeout milliseconds for one request
 * @property {number} retries of an idempotent request
 */

/**
 * @typedef {object} RequestOptions
 * @property {Query} [query]
 * @property {unknown} [body]
 * @property {Record<string, string>} [headers]
 * @property {AbortSignal} [signal]
 * @property {boolean} [idempotent] whether it may be sent twice; true for GET
 */

export class Http {
  /** @param {HttpOptions} options */
  constructor(options) {
    this.options = options;
    this.base = options.url.replace(/\/+$/, "");
  }

  /**
   * Return the decoded body, or null for 204. Retries an idempotent request after 1, 2 and
   * 4 seconds when the connection fails or the server is overloaded.
   *
   * @param {string} method
   * @param {string} path
   * @param {RequestOptions} [options]
   * @returns {Promise<any>}
   */
  async request(method, path, options = {}) {
    const { signal = new AbortController().signal, idempotent = method === "GET" } = options;
    const backoff = new Backoff({ attempts: idempotent ? this.options.retries : 0 });
    for (;;) {
      try {
        return await this.#requestOnce(method, path, options, signal);
      } catch (error) {
        if (!(error instanceof WindlassError) || error.permanent) throw error;
        const delay = backoff.next();
        if (delay === null) throw error;
        const wait = Math.max(delay, error.retryAfter * 1000);
        this.options.log.debug(
          `windlass: retrying ${method} ${path} in ${wait} ms: ${error.message}`,
        );
        await sleep(this.options.timers, wait, signal);
      }
    }
  }

  /**
   * @param {string} method
   * @param {string} path
   * @param {RequestOptions} options
   * @param {AbortSignal} signal
   */
  async #requestOnce(method, path, options, signal) {
    const { timers, timeout } = this.options;
    const { controller, release } = linkedController(signal);
    const expire = () =>
      controller.abort(connectionError(`no response to ${method} ${path} within ${timeout} ms`));
    const timer = timers.setTimeout(expire, timeout);
    try {
      const response = await this.#send(method, path, options, controller.signal);
      return response.status === 204 ? null : await response.json();
    } catch (error) {
      throw this.#normalizeError(error, `${method} ${path}`, controller.signal);
    } finally {
      timers.clearTimeout(timer);
      release();
    }
  }

  /**
   * Open an event stream. Return its reader, or null for 204 (no more events).
   *
   * @param {string} path
   * @param {Query} query
   * @param {AbortSignal} signal
   * @returns {Promise<ReadableStreamDefaultReader<Uint8Array> | null>}
   */
  async open(path, query, signal) {
    try {
      const headers = { Accept: "text/event-stream" };
      const response = await this.#send("GET", path, { query, headers }, signal);
      if (response.status === 204) return null;
      const contentType = response.headers.get("content-type") ?? "no content type";
      if (!contentType.startsWith("text/event-stream") || response.body === null) {
        throw connectionError(`GET ${path} returned ${contentType}, expected text/event-stream`);
      }
      return response.body.getReader();
    } catch (error) {
      throw this.#normalizeError(error, `GET ${path}`, signal);
    }
  }

  /**
   * @param {string} method
   * @param {string} path
   * @param {RequestOptions} options
   * @param {AbortSignal} signal
   */
  async #send(method, path, { query, body, headers }, signal) {
    const { key } = this.options;
    const response = await this.options.fetch(this.base + path + queryText(query), {
      method,
      signal,
      cache: "no-store",
      credentials: key === null ? "same-origin" : "omit",
      headers: {
        Accept: "application/json",
        ...(body === undefined ? {} : { "Content-Type": "application/json" }),
        ...(key === null ? {} : { Authorization: `Bearer ${key}` }),
        ...headers,
      },
      body: body === undefined ? null : JSON.stringify(body),
    });
    if (!response.ok) throw await responseError(response);
    return response;
  }

  /**
   * Convert an error of fetch, whose message differs between browsers.
   *
   * @param {unknown} error
   * @param {string} request method and path
   * @param {AbortSignal} signal
   */
  #normalizeError(error, request, signal) {
    if (signal.aborted) return signal.reason;
    if (error instanceof WindlassError) return error;
    return connectionError(`${request} failed (${/** @type {Error} */ (error).message})`, error);
  }
}

/** @param {Query} [query] */
export function queryText(query = {}) {
  const params = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const item of Array.isArray(value) ? value : [value]) {
      if (item === undefined || item === null) continue;
      params.append(name, item instanceof Date ? item.toISOString() : String(item));
    }
  }
  const text = params.toString();
  return text && `?${text}`;
}
