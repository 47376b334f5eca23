/** Requests and answers: JSON both ways, problems as errors, repeats where they do no harm. */

/** @import { Log, Query, Timers } from "../windlass.js" */

import { WindlassError, lost, refusal } from "./errors.js";
import { Backoff, sleep, tied } from "./waiting.js";

/**
 * @typedef {object} HttpOptions
 * @property {string} url
 * @property {string | null} key
 * @property {typeof fetch} fetch
 * @property {Timers} timers
 * @property {Log} log
 * @property {number} timeout milliseconds for one try
 * @property {number} retries how often a repeatable request is sent again
 */

/**
 * @typedef {object} Asked
 * @property {Query} [query]
 * @property {unknown} [body]
 * @property {Record<string, string>} [headers]
 * @property {AbortSignal} [signal]
 * @property {boolean} [repeat] whether to do it twice is the same as once; so is every GET
 */

export class Http {
  /** @param {HttpOptions} options */
  constructor(options) {
    this.options = options;
    this.base = options.url.replace(/\/+$/, "");
  }

  /**
   * The answer, decoded; null if there is none. A request that may be repeated is, after 1, 2 and
   * 4 seconds, while there is no connection or the server is too busy.
   *
   * @param {string} method
   * @param {string} path
   * @param {Asked} [asked]
   * @returns {Promise<any>}
   */
  async request(method, path, asked = {}) {
    const { signal = new AbortController().signal, repeat = method === "GET" } = asked;
    const backoff = new Backoff({ attempts: repeat ? this.options.retries : 0 });
    for (;;) {
      try {
        return await this.#once(method, path, asked, signal);
      } catch (error) {
        if (!(error instanceof WindlassError) || error.permanent) throw error;
        const delay = backoff.next();
        if (delay === null) throw error;
        const wait = Math.max(delay, error.retryAfter * 1000);
        this.options.log.debug(`windlass: ${method} ${path} again in ${wait} ms: ${error.message}`);
        await sleep(this.options.timers, wait, signal);
      }
    }
  }

  /**
   * @param {string} method
   * @param {string} path
   * @param {Asked} asked
   * @param {AbortSignal} signal
   */
  async #once(method, path, asked, signal) {
    const { timers, timeout } = this.options;
    const { controller, release } = tied(signal);
    const late = () => controller.abort(lost(`no answer to ${method} ${path} in ${timeout} ms`));
    const timer = timers.setTimeout(late, timeout);
    try {
      const response = await this.#send(method, path, asked, controller.signal);
      return response.status === 204 ? null : await response.json();
    } catch (error) {
      throw this.#explained(error, `${method} ${path}`, controller.signal);
    } finally {
      timers.clearTimeout(timer);
      release();
    }
  }

  /**
   * A stream that has begun; null if there is nothing to come.
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
      const kind = response.headers.get("content-type") ?? "nothing";
      if (!kind.startsWith("text/event-stream") || response.body === null) {
        throw lost(`GET ${path} was answered with ${kind}, not with a stream of events`);
      }
      return response.body.getReader();
    } catch (error) {
      throw this.#explained(error, `GET ${path}`, signal);
    }
  }

  /**
   * @param {string} method
   * @param {string} path
   * @param {Asked} asked
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
    if (!response.ok) throw await refusal(response);
    return response;
  }

  /**
   * What an error of fetch means: it has its own words for each browser.
   *
   * @param {unknown} error
   * @param {string} what
   * @param {AbortSignal} signal
   */
  #explained(error, what, signal) {
    if (signal.aborted) return signal.reason;
    if (error instanceof WindlassError) return error;
    return lost(`${what} got no whole answer (${/** @type {Error} */ (error).message})`, error);
  }
}

/** @param {Query} [query] */
export function queryText(query = {}) {
  const found = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one === undefined || one === null) continue;
      found.append(name, one instanceof Date ? one.toISOString() : String(one));
    }
  }
  const text = found.toString();
  return text && `?${text}`;
}
