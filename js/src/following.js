/** Callbacks on top of streams, each with a way to stop: an unsubscribe function, and a signal. */

/** @import { EventsOptions, FollowOptions, ListFilter } from "../windlass.js" */
/** @import { Snapshot, WatchOptions } from "../windlass.js" */
/** @import { Feeds } from "./feeds.js" */
/** @import { Context } from "./stream.js" */

import { Listener, guarded } from "./listener.js";
import { followMany, watch } from "./many.js";
import { tied } from "./waiting.js";

export class Following {
  /**
   * @param {Context} context
   * @param {Feeds} feeds
   */
  constructor(context, feeds) {
    this.context = context;
    this.feeds = feeds;
  }

  /**
   * @param {string} id
   * @param {EventsOptions} [options]
   */
  events(id, { types, ...options } = {}) {
    return chosen(this.feeds.events(id, this.#guarded(options)), types && new Set(types));
  }

  /**
   * @param {string} id
   * @param {FollowOptions} options
   */
  follow(id, options) {
    const listener = new Listener(options, this.context.log);
    const listen = async (/** @type {AbortSignal} */ signal) => {
      let last = null;
      for await (const event of this.feeds.events(id, this.#guarded({ ...options, signal }))) {
        listener.hear(event);
        last = event;
      }
      if (!last?.final) listener.end();
    };
    return this.#start(listen, options.signal, options.onError);
  }

  /**
   * @param {Record<string, string | number>} jobs
   * @param {FollowOptions} options
   */
  followMany(jobs, options) {
    const listen = (/** @type {AbortSignal} */ signal) =>
      followMany(this.context, jobs, options, signal);
    return this.#start(listen, options.signal, options.onError);
  }

  /**
   * @param {ListFilter} filter
   * @param {(snapshot: Snapshot) => unknown} callback
   * @param {WatchOptions} [options]
   */
  watch(filter, callback, options = {}) {
    const listen = (/** @type {AbortSignal} */ signal) =>
      watch(this.context, filter, callback, options, signal);
    return this.#start(listen, options.signal, options.onError);
  }

  /**
   * @template {EventsOptions} O
   * @param {O} options
   */
  #guarded(options) {
    if (options.onConnection === undefined) return options;
    return { ...options, onConnection: guarded(this.context.log, options.onConnection) };
  }

  /**
   * Who stops listening hears nothing more, neither of an end nor of an error.
   *
   * @param {(signal: AbortSignal) => Promise<void>} listen
   * @param {AbortSignal | undefined} signal
   * @param {((error: any) => unknown) | undefined} failed
   * @returns {() => void}
   */
  #start(listen, signal, failed) {
    const { controller, release } = tied(signal);
    const tell = guarded(this.context.log, failed ?? ((error) => this.context.log.error(error)));
    listen(controller.signal)
      .catch((error) => {
        if (!controller.signal.aborted) tell(error);
      })
      .finally(release);
    return () => controller.abort();
  }
}

/**
 * As on the server, the last event comes whatever is chosen, and so does a leap.
 *
 * @param {AsyncGenerator<import("../windlass.js").JobEvent, void, void>} events
 * @param {Set<string> | undefined} types
 */
async function* chosen(events, types) {
  for await (const event of events) {
    const always = types === undefined || event.final || event.type === "resync";
    if (always || types.has(event.type)) yield event;
  }
}
