/** Requests of those who have time. */

import { WindlassError } from "./errors.js";
import { Http } from "./http.js";

/** Asks again for as long as there is no answer; and when it may not, waits until it may. */
export class Patient extends Http {
  /**
   * @param {Http} http
   * @param {(error: WindlassError, signal: AbortSignal) => Promise<void>} refused
   */
  constructor(http, refused) {
    super({ ...http.options, retries: Infinity });
    this.refused = refused;
  }

  /** @type {Http["request"]} */
  async request(method, path, asked = {}) {
    const { signal = new AbortController().signal } = asked;
    for (;;) {
      try {
        return await super.request(method, path, asked);
      } catch (error) {
        if (!(error instanceof WindlassError) || error.status !== 401) throw error;
        await this.refused(error, signal);
      }
    }
  }
}
