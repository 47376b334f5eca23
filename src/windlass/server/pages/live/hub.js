/**
 * The hub of all tabs of a browser: it holds the only event stream, polls the API, and passes
 * updates to the tabs. Runs in a shared worker, or in the tab without shared workers.
 */

/** @import { ConnectionState, LiveConnection } from "../client/windlass.js" */
/** @import { ConnectionMessage, HubMessage, HubRequest, Port } from "./messages.js" */
/** @import { SubscribeRequest, SubscriptionUpdate } from "./messages.js" */

import { systemTimers } from "../client/src/timers.js";
import { Windlass } from "../client/windlass.js";
import { Poller } from "./poller.js";
import { errorPayload } from "./error-payload.js";

const TAB_TIMEOUT = 200_000; // milliseconds; browsers delay timers of hidden tabs by a minute
const CHECK_INTERVAL = 50_000;
const KEEP = 4096; // buffered events of a followed job

/** A tab and its subscriptions. */
class Tab {
  visible = false;
  connected = true;
  lastSeen = 0;
  /** Released when the tab ends. @type {string | null} */
  lock = null;
  /** @type {Map<number, () => void>} */
  stops = new Map();

  /** @param {Port} port */
  constructor(port) {
    this.port = port;
  }

  /** @param {HubMessage} message */
  send(message) {
    if (this.connected) this.port.postMessage(message);
  }

  unsubscribeAll() {
    for (const stop of this.stops.values()) stop();
    this.stops.clear();
    this.connected = false;
  }
}

export class Hub {
  #client;
  #pollClient;
  #timers;
  /** @type {LiveConnection} */
  #live;
  /** @type {Poller} */
  #poller;
  /** The user whose data is cached here. @type {string | null} */
  #identity = null;
  /** @type {Set<Tab>} */
  #tabs = new Set();
  /** @type {ConnectionState} */
  #stream = { open: false, attempt: 0, wait: 0, error: null };
  /** @type {ConnectionMessage} */
  #connection = { open: false, since: new Date(), attempt: 0, wait: 0, error: null };
  /** After 401: no requests until a restart. */
  #unauthorized = false;
  #checking = false;

  /** @param {import("../client/windlass.js").WindlassOptions} [options] */
  constructor(options = {}) {
    // This is <url>/assets/<digest>/live/hub.js.
    const url = new URL("../../..", import.meta.url).href;
    this.#client = new Windlass({ url, keep: KEEP, ...options });
    // Without retries: the next poll follows anyway.
    this.#pollClient = new Windlass({ url, ...options, retries: 0 });
    this.#timers = options.timers ?? systemTimers;
    [this.#live, this.#poller] = this.#start();
  }

  /** @returns {[LiveConnection, Poller]} */
  #start() {
    const live = this.#client.live();
    const poller = new Poller(this.#pollClient, this.#timers, (error) => {
      if (poller === this.#poller) this.#onPoll(error);
    });
    [this.#live, this.#poller] = [live, poller];
    live.connection((state) => this.#onStream(state));
    return [live, poller];
  }

  /** @param {Port} port */
  join(port) {
    const tab = new Tab(port);
    port.onmessage = ({ data }) => this.#handle(tab, data);
    port.postMessage({ pong: true });
  }

  /**
   * @param {Tab} tab
   * @param {HubRequest} request
   */
  #handle(tab, request) {
    tab.lastSeen = this.#timers.now();
    if (request.type === "register") this.#connect(tab, request);
    else if (request.type === "unregister") this.#drop(tab);
    else if (!this.#tabs.has(tab)) tab.port.postMessage({ resubscribe: true });
    else if (request.type === "ping") tab.send({ pong: true });
    else if (request.type === "visibility") this.#setVisible(tab, request.visible);
    else if (request.type === "refresh") this.#poller.refresh(request.path);
    else if (request.type === "restart") this.#setUser(request.identity);
    else if (request.type === "unsubscribe") this.#stop(tab, request.id);
    else this.#subscribe(tab, request);
  }

  /**
   * @param {Tab} tab
   * @param {{ visible: boolean, lock: string | null }} request
   */
  #connect(tab, { visible, lock }) {
    if (lock !== null && tab.lock === null) {
      tab.lock = lock;
      void navigator.locks.request(lock, () => this.#drop(tab));
    }
    tab.unsubscribeAll();
    tab.connected = true;
    this.#tabs.add(tab);
    if (this.#unauthorized) this.#restart(); // the new page may be signed in
    tab.send({ connection: this.#connection });
    this.#setVisible(tab, visible);
    this.#checkTabs();
  }

  /** @param {Tab} tab */
  #drop(tab) {
    tab.unsubscribeAll();
    this.#tabs.delete(tab);
  }

  /**
   * @param {Tab} tab
   * @param {number} id
   */
  #stop(tab, id) {
    tab.stops.get(id)?.();
    tab.stops.delete(id);
  }

  /**
   * @param {Tab} tab
   * @param {boolean} visible
   */
  #setVisible(tab, visible) {
    tab.visible = visible;
    this.#poller.schedule();
    const { open, error } = this.#stream;
    if (visible && !open && error !== null && !error.permanent) this.#live.restart();
  }

  /**
   * @param {Tab} tab
   * @param {SubscribeRequest} request
   */
  #subscribe(tab, request) {
    const { id } = request;
    const notify = (/** @type {SubscriptionUpdate} */ update) => tab.send({ id, ...update });
    this.#stop(tab, id);
    if (request.type === "follow") {
      tab.stops.set(id, this.#follow(request.job, request.after, notify));
    } else if (request.type === "list") tab.stops.set(id, this.#list(request.filter, notify));
    else
      tab.stops.set(
        id,
        this.#poller.subscribe(request, () => tab.visible, notify),
      );
  }

  /**
   * @param {string} job
   * @param {number} after
   * @param {(update: SubscriptionUpdate) => void} notify
   */
  #follow(job, after, notify) {
    return this.#live.follow(job, {
      after,
      onEvent: (event) => notify({ event }),
      onEnd: (event) => event === null && notify({ end: true }),
      onError: (error) => notify({ error: errorPayload(error) }),
    });
  }

  /**
   * @param {import("../client/windlass.js").ListFilter} filter
   * @param {(update: SubscriptionUpdate) => void} notify
   */
  #list(filter, notify) {
    return this.#live.list(filter, (snapshot) => notify({ snapshot }), {
      onLoaded: () => notify({ loaded: true }),
      onError: (error) => notify({ error: errorPayload(error) }),
    });
  }

  /**
   * Drop all cached data and pending responses if the user changed; each tab then subscribes again.
   *
   * @param {string | null} identity null: the user is the same
   */
  #setUser(identity) {
    if (identity !== null && identity !== this.#identity) {
      this.#identity = identity;
      const tabs = [...this.#tabs].filter(({ stops }) => stops.size > 0);
      for (const tab of tabs) tab.unsubscribeAll();
      this.#live.close();
      this.#poller.stop();
      this.#start();
      for (const tab of tabs) tab.port.postMessage({ resubscribe: true });
    }
    this.#restart();
  }

  #restart() {
    if (this.#unauthorized) this.#setConnection({ open: false, attempt: 0, wait: 0, error: null });
    this.#unauthorized = false;
    this.#live.restart();
    this.#poller.restart();
  }

  /**
   * Stops polling while the stream is broken, and polls everything when it is back.
   *
   * @param {ConnectionState} state
   */
  #onStream(state) {
    const reopened = state.open && !this.#stream.open;
    this.#stream = state;
    if (state.error?.permanent) this.#unauthorized = true;
    else if (this.#unauthorized) return; // a poll got 401; the stream will, too
    if (state.error !== null) this.#poller.stop();
    else if (reopened || this.#poller.stopped) this.#poller.restart();
    if (!this.#streamIdle)
      this.#setConnection({ ...state, error: state.error && errorPayload(state.error) });
  }

  /** No job or list is followed: polls then determine the connection state. */
  get #streamIdle() {
    return !this.#stream.open && this.#stream.error === null;
  }

  /**
   * Handle the result of a poll.
   *
   * @param {import("../client/windlass.js").WindlassError | null} error
   */
  #onPoll(error) {
    if (this.#unauthorized) return;
    if (error?.status === 401) {
      this.#unauthorized = true;
      this.#poller.stop();
    } else if (!this.#streamIdle) return;
    const lost = error !== null && (this.#unauthorized || !error.permanent);
    this.#setConnection({
      open: !lost,
      attempt: 0,
      wait: 0,
      error: lost ? errorPayload(error) : null,
    });
  }

  /** @param {Omit<ConnectionMessage, "since">} state */
  #setConnection(state) {
    const { open, since } = this.#connection;
    const connection = { ...state, since: open === state.open ? since : new Date() };
    if (isSame(this.#connection, connection)) return;
    this.#connection = connection;
    for (const tab of this.#tabs) tab.send({ connection });
  }

  /**
   * Drop tabs that have sent nothing for TAB_TIMEOUT. A frozen tab subscribes again when it wakes.
   *
   * Waits for its interval. Stops with the last tab.
   */
  #checkTabs() {
    if (this.#checking) return;
    this.#checking = true;
    this.#timers.setTimeout(() => {
      this.#checking = false;
      for (const tab of this.#tabs) {
        if (this.#timers.now() - tab.lastSeen > TAB_TIMEOUT) this.#drop(tab);
      }
      if (this.#tabs.size > 0) this.#checkTabs();
    }, CHECK_INTERVAL);
  }
}

/**
 * @param {ConnectionMessage} first
 * @param {ConnectionMessage} second
 */
function isSame(first, second) {
  const key = (/** @type {ConnectionMessage} */ { open, attempt, wait, error }) =>
    JSON.stringify([open, attempt, wait, error?.status, error?.code, error?.detail]);
  return key(first) === key(second);
}

if ("SharedWorkerGlobalScope" in globalThis) {
  const hub = new Hub();
  addEventListener("connect", (event) => hub.join(/** @type {MessageEvent} */ (event).ports[0]));
}
