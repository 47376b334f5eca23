/**
 * A tab's connection to the hub. When the hub drops the tab or dies, the tab subscribes again with
 * its last cursors, so events are neither lost nor delivered twice.
 */

/** @import { FollowOptions, ListFilter, ProblemInit, Snapshot } from "../client/windlass.js" */
/** @import { Connection, ConnectionMessage, HubMessage, HubRequest } from "./messages.js" */
/** @import { ListOptions, PollCallback, Port } from "./messages.js" */
/** @import { SubscribeRequest, SubscriptionUpdate } from "./messages.js" */

import { JobListener } from "../client/src/streaming/job-listener.js";
import { ListWatch } from "../client/src/streaming/list-watch.js";
import { safeCallback } from "../client/src/streaming/safe-callback.js";
import { systemTimers } from "../client/src/timers.js";
import { WindlassError } from "../client/windlass.js";

const PING_INTERVAL = 15_000; // milliseconds
const MAX_UNANSWERED = 3; // pings, after which the hub counts as dead

/**
 * @typedef {object} HubClientOptions
 * @property {() => Promise<Port>} open
 * @property {Promise<string | null>} lock name of a lock that the tab holds
 * @property {boolean} visible
 * @property {import("../client/windlass.js").Timers} [timers]
 * @property {import("../client/windlass.js").Log} [log]
 */

/**
 * @typedef {object} Subscription
 * @property {() => SubscribeRequest} request with the current cursor
 * @property {(update: SubscriptionUpdate) => boolean} handle returns false when it has ended
 */

export class HubClient {
  #open;
  #lockName;
  /** @type {string | null} */
  #lock = null;
  #timers;
  #log;
  #visible;
  #next = 1;
  #unanswered = 0;
  /** @type {Port | null} */
  #port = null;
  #opening = false;
  /** User to send when the port opens. @type {string | null} */
  #pendingIdentity = null;
  /** @type {Map<number, Subscription>} */
  #subscriptions = new Map();
  /** @type {Connection} */
  #connection = { open: false, since: new Date(), attempt: 0, wait: 0, error: null };
  /** @type {Set<(state: Connection) => unknown>} */
  #connectionListeners = new Set();

  /** @param {HubClientOptions} options */
  constructor(options) {
    this.#open = options.open;
    this.#lockName = options.lock;
    this.#visible = options.visible;
    this.#timers = options.timers ?? systemTimers;
    this.#log = options.log ?? console;
  }

  /**
   * Follow a job: its log after `after`, then live events, each once and in order.
   *
   * @param {string} job
   * @param {Omit<FollowOptions, "signal" | "onConnection">} options
   * @returns {() => void} unsubscribes
   */
  follow(job, options) {
    const listener = new JobListener(options, this.#log);
    let last = Number(
      String(options.after ?? 0)
        .split("-")
        .at(-1),
    );
    return this.#subscribe((id) => ({
      request: () => ({ type: "follow", id, job, after: last }),
      handle: (update) => {
        if ("event" in update && update.event.seq > last) {
          last = update.event.seq;
          listener.handle(update.event);
          return !update.event.final;
        }
        if ("end" in update) listener.end();
        if ("error" in update) this.#fail(options.onError, update.error);
        return !("end" in update || "error" in update);
      },
    }));
  }

  /**
   * Watch a list: the current state of each job, and each change. `listed` is false when a job has
   * left the list.
   *
   * @param {ListFilter} filter
   * @param {(snapshot: Snapshot) => unknown} callback
   * @param {ListOptions} [options]
   * @returns {() => void} unsubscribes
   */
  list(filter, callback, options = {}) {
    const watch = new ListWatch("", this.#log);
    watch.subscribe({ notify: safeCallback(this.#log, callback), options, ready: true });
    return this.#subscribe((id) => ({
      request: () => {
        watch.start(); // the hub sends the whole list again
        return { type: "list", id, filter };
      },
      handle: (update) => {
        if ("snapshot" in update) watch.apply(update.snapshot);
        if ("loaded" in update) watch.loaded();
        if ("error" in update) this.#fail(options.onError, update.error);
        return !("error" in update);
      },
    }));
  }

  /**
   * Poll a path with GET, shared by all tabs, while a subscribed tab is visible. Calls back with
   * the last known answer first.
   *
   * @param {string} path with its query
   * @param {number} seconds between requests; the shortest of all tabs counts
   * @param {PollCallback} callback
   * @returns {() => void} unsubscribes
   */
  poll(path, seconds, callback) {
    const notify = safeCallback(this.#log, callback);
    return this.#subscribe((id) => ({
      request: () => ({ type: "poll", id, path, seconds }),
      handle: (update) => {
        if ("answer" in update) {
          notify(update.answer, update.problem && new WindlassError(update.problem));
        }
        return true;
      },
    }));
  }

  /**
   * Poll this path now, with any query, after a change to it.
   *
   * @param {string} path
   */
  refresh(path) {
    this.#send({ type: "refresh", path });
  }

  /**
   * Reconnect and poll now, for example after a sign-in.
   *
   * @param {string | null} [identity] the signed-in user: the hub drops data of another one
   */
  restart(identity = null) {
    if (this.#port === null) this.#pendingIdentity = identity ?? this.#pendingIdentity;
    this.#send({ type: "restart", identity });
  }

  /**
   * Call back with the connection state now and at each change.
   *
   * @param {(state: Connection) => unknown} callback
   * @returns {() => void} unsubscribes
   */
  connection(callback) {
    const notify = safeCallback(this.#log, callback);
    this.#connectionListeners.add(notify);
    this.#connect();
    notify(this.#connection);
    return () => void this.#connectionListeners.delete(notify);
  }

  /**
   * Report whether the tab is visible.
   *
   * @param {boolean} visible
   */
  setVisible(visible) {
    this.#visible = visible;
    this.#send({ type: "visibility", visible });
  }

  /** The page is hidden or closed. It may be restored: see `subscribeAll`. */
  leave() {
    this.#send({ type: "unregister" });
  }

  /** Register the tab and all its subscriptions with the hub. */
  subscribeAll() {
    this.#send({ type: "register", visible: this.#visible, lock: this.#lock });
    if (this.#pendingIdentity !== null)
      this.#send({ type: "restart", identity: this.#pendingIdentity });
    this.#pendingIdentity = null;
    for (const { request } of this.#subscriptions.values()) this.#send(request());
  }

  /** @param {(id: number) => Subscription} make */
  #subscribe(make) {
    const id = this.#next++;
    const subscription = make(id);
    this.#subscriptions.set(id, subscription);
    this.#connect();
    this.#send(subscription.request());
    return () => {
      if (this.#subscriptions.delete(id)) this.#send({ type: "unsubscribe", id });
    };
  }

  /** Open the port to the hub once; pending subscriptions are sent when it is open. */
  #connect() {
    if (this.#port !== null || this.#opening) return;
    this.#opening = true;
    Promise.all([this.#open(), this.#lockName]).then(
      ([port, lock]) => this.#opened(port, lock),
      (error) => {
        this.#log.warn("windlass: starting the shared worker failed; retrying", error);
        this.#opening = false;
        this.#timers.setTimeout(() => this.#connect(), PING_INTERVAL);
      },
    );
  }

  /**
   * @param {Port} port
   * @param {string | null} lock
   */
  #opened(port, lock) {
    this.#opening = false;
    this.#unanswered = 0;
    this.#lock = lock;
    this.#port = port;
    port.onmessage = ({ data }) => this.#port === port && this.#handle(data);
    this.subscribeAll();
    this.#timers.setTimeout(() => this.#ping(port), PING_INTERVAL);
  }

  /**
   * Ping the hub every 15 seconds, and replace a hub that does not answer. Stops with its port.
   *
   * @param {Port} port
   */
  #ping(port) {
    if (this.#port !== port) return;
    this.#unanswered += 1;
    if (this.#unanswered > MAX_UNANSWERED) {
      this.#log.warn("windlass: the shared worker does not respond; starting another");
      port.close();
      this.#port = null;
      this.#connect();
      return;
    }
    this.#send({ type: "ping" });
    this.#timers.setTimeout(() => this.#ping(port), PING_INTERVAL);
  }

  /** @param {HubMessage} message */
  #handle(message) {
    this.#unanswered = 0;
    if ("resubscribe" in message) this.subscribeAll();
    if ("connection" in message) this.#setConnection(message.connection);
    if (!("id" in message)) return;
    const subscription = this.#subscriptions.get(message.id);
    if (subscription === undefined || subscription.handle(message)) return;
    this.#subscriptions.delete(message.id);
    this.#send({ type: "unsubscribe", id: message.id });
  }

  /** @param {ConnectionMessage} message */
  #setConnection(message) {
    this.#connection = { ...message, error: message.error && new WindlassError(message.error) };
    for (const notify of this.#connectionListeners) notify(this.#connection);
  }

  /**
   * @param {((error: WindlassError) => unknown) | undefined} onError
   * @param {ProblemInit} problem
   */
  #fail(onError, problem) {
    safeCallback(
      this.#log,
      onError ?? ((error) => this.#log.error(error)),
    )(new WindlassError(problem));
  }

  /** @param {HubRequest} request */
  #send(request) {
    this.#port?.postMessage(request);
  }
}
