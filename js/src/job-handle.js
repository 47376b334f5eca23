/** Methods of the client bound to one job id. */

/** @import { Windlass } from "./client.js" */
/** @import { CancelOptions, EventsOptions, FollowOptions, Options } from "../windlass.js" */

export class JobHandle {
  /** @type {Windlass} */
  #client;

  /**
   * @param {Windlass} client
   * @param {string} id
   */
  constructor(client, id) {
    this.#client = client;
    this.id = id;
  }

  /** @param {Options} [options] */
  get(options) {
    return this.#client.get(this.id, options);
  }

  /** @param {Options} [options] */
  attempts(options) {
    return this.#client.attempts(this.id, options);
  }

  /** @param {Options} [options] */
  graph(options) {
    return this.#client.graph(this.id, options);
  }

  /** @param {Options} [options] */
  why(options) {
    return this.#client.why(this.id, options);
  }

  /** @param {CancelOptions} [options] */
  cancel(options) {
    return this.#client.cancel(this.id, options);
  }

  /** @param {Options} [options] */
  submit(options) {
    return this.#client.submit(this.id, options);
  }

  /** @param {Options} [options] */
  retry(options) {
    return this.#client.retry(this.id, options);
  }

  /** @param {Options} [options] */
  resume(options) {
    return this.#client.resume(this.id, options);
  }

  /** @param {Options} [options] */
  delete(options) {
    return this.#client.delete(this.id, options);
  }

  /** @param {EventsOptions} [options] */
  events(options) {
    return this.#client.events(this.id, options);
  }

  /** @param {FollowOptions} options */
  follow(options) {
    return this.#client.follow(this.id, options);
  }

  /** @param {Options} [options] */
  wait(options) {
    return this.#client.wait(this.id, options);
  }
}
