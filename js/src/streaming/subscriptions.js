/** Callback subscriptions. Each ends by its unsubscribe function or its signal. */

/** @import { EventsOptions, FollowOptions, ListFilter } from "../../windlass.js" */
/** @import { Snapshot, WatchOptions } from "../../windlass.js" */
/** @import { Feeds } from "./feeds.js" */
/** @import { Context } from "./reconnecting-stream.js" */

import { JobListener } from "./job-listener.js";
import { safeCallback } from "./safe-callback.js";
import { followMany, watch } from "./multi-job-stream.js";
import { linkedController } from "../abort.js";

export class Subscriptions {
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
    return filterTypes(
      this.feeds.events(id, this.#guardConnection(options)),
      types && new Set(types),
    );
  }

  /**
   * @param {string} id
   * @param {FollowOptions} options
   */
  follow(id, options) {
    const listener = new JobListener(options, this.context.log);
    const run = async (/** @type {AbortSignal} */ signal) => {
      let last = null;
      for await (const event of this.feeds.events(
        id,
        this.#guardConnection({ ...options, signal }),
      )) {
        listener.handle(event);
        last = event;
      }
      if (!last?.final) listener.end();
    };
    return this.#start(run, options.signal, options.onError);
  }

  /**
   * @param {Record<string, string | number>} jobs
   * @param {FollowOptions} options
   */
  followMany(jobs, options) {
    const run = (/** @type {AbortSignal} */ signal) =>
      followMany(this.context, jobs, options, signal);
    return this.#start(run, options.signal, options.onError);
  }

  /**
   * @param {ListFilter} filter
   * @param {(snapshot: Snapshot) => unknown} callback
   * @param {WatchOptions} [options]
   */
  watch(filter, callback, options = {}) {
    const run = (/** @type {AbortSignal} */ signal) =>
      watch(this.context, filter, callback, options, signal);
    return this.#start(run, options.signal, options.onError);
  }

  /**
   * @template {EventsOptions} O
   * @param {O} options
   */
  #guardConnection(options) {
    if (options.onConnection === undefined) return options;
    return { ...options, onConnection: safeCallback(this.context.log, options.onConnection) };
  }

  /**
   * Run a subscription. After unsubscribe there are no more callbacks, not even for end or error.
   *
   * @param {(signal: AbortSignal) => Promise<void>} run
   * @param {AbortSignal | undefined} signal
   * @param {((error: any) => unknown) | undefined} onError
   * @returns {() => void}
   */
  #start(run, signal, onError) {
    const { controller, release } = linkedController(signal);
    const report = safeCallback(this.context.log, onError ?? ((error) => this.context.log.error(error)));
    run(controller.signal)
      .catch((error) => {
        if (!controller.signal.aborted) report(error);
      })
      .finally(release);
    return () => controller.abort();
  }
}

/**
 * Yield events of the given types. As on the server, the last event and `resync` always pass.
 *
 * @param {AsyncGenerator<import("../../windlass.js").JobEvent, void, void>} events
 * @param {Set<string> | undefined} types
 */
async function* filterTypes(events, types) {
  for await (const event of events) {
    const always = types === undefined || event.final || event.type === "resync";
    if (always || types.has(event.type)) yield event;
  }
}
