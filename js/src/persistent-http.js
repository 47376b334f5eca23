/** HTTP requests without a retry limit, for streams that stay open. */

import { WindlassError } from "./errors.js";
import { Http } from "./http.js";

/** Retries until a response arrives. After 401, waits for `unauthorized` before the next try. */
export class PersistentHttp extends Http {
  /**
   * @param {Http} http
   * @param {(error: WindlassError, signal: AbortSignal) => Promise<void>} unauthorized
   *   resolves when credentials may be valid again
   */
  constructor(http, unauthorized) {
    super({ ...http.options, retries: Infinity });
    this.unauthorized = unauthorized;
  }

  /** @type {Http["request"]} */
  async request(method, path, options = {}) {
    const { signal = new AbortController().signal } = options;
    for (;;) {
      try {
        return await super.request(method, path, options);
      } catch (error) {
        if (!(error instanceof WindlassError) || error.status !== 401) throw error;
        await this.unauthorized(error, signal);
      }
    }
  }
}
