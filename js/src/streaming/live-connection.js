/**
 * Any number of jobs and lists on one connection.
 *
 * Waits for subscriptions and messages. Guarantees one connection at a time, with all jobs and lists.
 * Each job resumes after the last event received. Opens a new connection 50 ms after the jobs or
 * lists change. Retries without limit, at most 30 seconds apart, and immediately when the network is
 * back, the page becomes visible, or the machine resumes. An error of one job or list does not affect the others.
 * Disconnects when nothing is subscribed. After 401, stays disconnected until `restart()`.
 * A crash leaves no state.
 */

/** @import { ConnectionState, FollowOptions, ListFilter } from "../../windlass.js" */
/** @import { LiveListOptions, Snapshot, SseMessage } from "../../windlass.js" */
/** @import { Context, MessageResult } from "./reconnecting-stream.js" */
/** @import { Subscriber } from "./list-watch.js" */
/** @import { FollowedItem } from "./followed-items.js" */
/** @import { Feed } from "./feeds.js" */

import { watchReconnectTriggers } from "./reconnect-triggers.js";
import { WindlassError } from "../errors.js";
import { eventFromJson, serverError } from "./job-event.js";
import { Feeds } from "./feeds.js";
import { Subscriptions } from "./subscriptions.js";
import { queryText } from "../http.js";
import { safeCallback } from "./safe-callback.js";
import { ListWatch } from "./list-watch.js";
import { FollowedItems } from "./followed-items.js";
import { PersistentHttp } from "../persistent-http.js";
import { keepOpen } from "./reconnecting-stream.js";
import { Wakeup } from "../wakeup.js";

const CHANGE_DELAY = 50; // milliseconds, to combine changes
/** @type {ConnectionState} */
const IDLE = { open: false, attempt: 0, wait: 0, error: null };

export class LiveConnection {
  #context;
  #subscriptions;
  #items = new FollowedItems(() => this.#scheduleConnect());
  /** Items of the current connection. @type {Map<string, FollowedItem>} */
  #connected = new Map();
  #connection = new AbortController();
  #restarted = new Wakeup();
  /** @type {Set<(state: ConnectionState) => void>} */
  #connectionListeners = new Set();
  #state = IDLE;
  #unauthorized = false;
  /** @type {Set<() => void>} */
  #stops = new Set();
  /** @type {unknown} */
  #timer = null;
  /** @type {(() => void) | null} */
  #stopTriggers = null;

  /**
   * @param {Context} context
   * @param {number} keep
   */
  constructor(context, keep) {
    const http = new PersistentHttp(context.http, (error, signal) => {
      this.#fail(error);
      return this.#restarted.wait(signal);
    });
    this.#context = { ...context, http, backoff: { ...context.backoff, attempts: Infinity } };
    const feeds = new Feeds(this.#context, keep, (feed, signal) => this.#join(feed, signal));
    this.#subscriptions = new Subscriptions(this.#context, feeds);
  }

  /**
   * @param {string} id
   * @param {FollowOptions} options
   */
  follow(id, options) {
    // Ids are lower case on the stream.
    const stop = this.#subscriptions.follow(id.toLowerCase(), options);
    this.#stops.add(stop);
    return () => {
      this.#stops.delete(stop);
      stop();
    };
  }

  /**
   * @param {ListFilter} filter
   * @param {(snapshot: Snapshot) => unknown} callback
   * @param {LiveListOptions} [options]
   */
  list(filter, callback, options = {}) {
    const watch = this.#watch(queryText(filter).slice(1));
    /** @type {Subscriber} */
    const subscriber = { notify: safeCallback(this.#context.log, callback), options, ready: false };
    watch.subscribe(subscriber);
    safeCallback(this.#context.log, options.onConnection)(this.#state);
    const stop = () => {
      options.signal?.removeEventListener("abort", stop);
      watch.subscribers.delete(subscriber);
      const item = this.#items.get(watch.query);
      if (watch.subscribers.size === 0 && item?.watch === watch) item.end();
    };
    options.signal?.addEventListener("abort", stop);
    if (options.signal?.aborted) stop();
    return stop;
  }

  /** @param {(state: ConnectionState) => unknown} callback */
  connection(callback) {
    const notify = safeCallback(this.#context.log, callback);
    this.#connectionListeners.add(notify);
    notify(this.#state);
    return () => void this.#connectionListeners.delete(notify);
  }

  restart() {
    this.#unauthorized = false;
    this.#restarted.notify();
    this.#connect();
  }

  close() {
    for (const stop of this.#stops) stop();
    for (const { watch } of this.#items.values()) watch?.subscribers.clear();
    this.#stops.clear();
    this.#items.clear();
    this.#connectionListeners.clear();
    this.#unauthorized = false;
    this.#connect();
  }

  /** @param {string} query */
  #watch(query) {
    const existing = this.#items.get(query)?.watch;
    if (existing !== undefined) return existing;
    const watch = new ListWatch(query, this.#context.log);
    this.#items.add(query, { watch, end: (error) => error && watch.fail(error) });
    return watch;
  }

  /**
   * @param {Feed} feed
   * @param {AbortSignal} signal
   * @returns {Promise<void>}
   */
  #join(feed, signal) {
    return new Promise((resolve, reject) => {
      if (/[,:]/.test(feed.id)) {
        // separators of names on the stream
        reject(new WindlassError({ detail: `no job ${feed.id}`, code: "not_found", status: 404 }));
        return;
      }
      const item = this.#items.add(feed.id, {
        feed,
        end: (error) => (error === undefined ? resolve() : reject(error)),
      });
      signal.addEventListener("abort", () => item.end(signal.reason), { once: true });
      feed.setConnection(this.#state);
    });
  }

  /** Reconnect after a short delay, to combine changes. */
  #scheduleConnect() {
    this.#timer ??= this.#context.timers.setTimeout(() => {
      this.#timer = null;
      if (!this.#items.equals(this.#connected)) this.#connect();
    }, CHANGE_DELAY);
  }

  /** Replace the connection by one that continues after the last events. */
  #connect() {
    this.#connection.abort();
    this.#connected = new Map();
    if (this.#unauthorized) return;
    if (this.#items.size === 0) {
      this.#disconnected();
      return;
    }
    this.#stopTriggers ??= watchReconnectTriggers(this.#context.timers, {
      onMaybeDead: () => this.#unauthorized || this.#connect(),
      onVisible: () => this.#unauthorized || this.#state.open || this.#connect(),
    });
    const connection = (this.#connection = new AbortController());
    /** @type {import("./reconnecting-stream.js").StreamHandler} */
    const handler = {
      target: () => this.#target(),
      onMessage: (message) => this.#onMessage(message),
      onConnection: (state) => this.#setState(state),
    };
    keepOpen(this.#context, handler, connection.signal).then(
      () => connection.signal.aborted || this.#disconnected(),
      (error) => connection.signal.aborted || this.#fail(error),
    );
  }

  #disconnected() {
    this.#stopTriggers?.();
    this.#stopTriggers = null;
    this.#setState(IDLE);
  }

  /** @param {WindlassError} error */
  #fail(error) {
    this.#unauthorized = true;
    this.#connection.abort();
    this.#setState({ ...IDLE, error });
  }

  /** @returns {[string, import("../../windlass.js").Query]} */
  #target() {
    this.#connected = this.#items.copy();
    const after = [];
    const list = [];
    for (const { feed, watch } of this.#connected.values()) {
      if (feed !== undefined) after.push(`${feed.id}:${feed.buffer.last}`);
      if (watch !== undefined) list.push(watch.query);
      watch?.start();
    }
    return ["/api/events", { reportErrors: true, after: after.join(",") || undefined, list }];
  }

  /**
   * @param {SseMessage} message
   * @returns {MessageResult}
   */
  #onMessage({ type, data }) {
    const message = JSON.parse(data);
    const name = message.list ?? message.jobId;
    if (name === undefined) throw serverError(type, message);
    const item = this.#connected.get(name);
    if (item === undefined) return "ignored";
    if (type === "closed") this.#end(name, item, message.problem);
    else if (type === "snapshot") item.watch?.apply(message);
    else if (type === "loaded") item.watch?.loaded();
    else {
      const result = item.feed?.add(eventFromJson(message), this.#context.log);
      if (result === "ended") this.#end(name, item, null);
      if (result === "ignored") return "ignored";
    }
    return this.#connected.size === 0 && this.#items.size === 0 ? "ended" : "accepted";
  }

  /**
   * @param {string} name
   * @param {FollowedItem} item
   * @param {import("../../windlass.js").Problem | null} problem
   */
  #end(name, item, problem) {
    this.#connected.delete(name);
    item.end(problem === null ? undefined : new WindlassError(problem));
  }

  /** @param {ConnectionState} state */
  #setState(state) {
    this.#state = state;
    for (const { feed, watch } of this.#items.values()) {
      feed?.setConnection(state);
      for (const { options } of watch?.subscribers ?? []) {
        safeCallback(this.#context.log, options.onConnection)(state);
      }
    }
    for (const notify of this.#connectionListeners) notify(state);
  }
}
