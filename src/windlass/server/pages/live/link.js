/**
 * A tab's side of its hub: what the tab wants, and whom to tell. The hub may forget the tab, or be
 * gone; the tab then says again what it wants, and from where on. So nobody misses anything, nor
 * hears it twice.
 */

/** @import { FollowOptions, ListFilter, Snapshot, Told } from "../client/windlass.js" */
/** @import { Connection, Heard, ListOptions, News, PollCallback, Port } from "./messages.js" */
/** @import { Said, ToldConnection, Wish } from "./messages.js" */

import { Listener, guarded } from "../client/src/listener.js";
import { Listing } from "../client/src/listing.js";
import { systemTimers } from "../client/src/waiting.js";
import { WindlassError } from "../client/windlass.js";

const BEAT = 15_000; // milliseconds between two signs of life
const PATIENCE = 3; // signs without an answer, after which the hub is taken for gone

/**
 * @typedef {object} Surroundings
 * @property {() => Promise<Port>} open
 * @property {Promise<string | null>} alive the name of a lock that ends with the tab
 * @property {boolean} visible
 * @property {import("../client/windlass.js").Timers} [timers]
 * @property {import("../client/windlass.js").Log} [log]
 */

/**
 * @typedef {object} Subscription
 * @property {() => Wish} wish what to ask for now
 * @property {(news: News) => boolean} hear whether it goes on
 */

export class Link {
  #open;
  #alive;
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
  /** Who came in before the hub could be told so. @type {string | null} */
  #entered = null;
  /** @type {Map<number, Subscription>} */
  #wanted = new Map();
  /** @type {Connection} */
  #connection = { open: false, since: new Date(), attempt: 0, wait: 0, error: null };
  /** @type {Set<(state: Connection) => unknown>} */
  #watchers = new Set();

  /** @param {Surroundings} surroundings */
  constructor(surroundings) {
    this.#open = surroundings.open;
    this.#alive = surroundings.alive;
    this.#visible = surroundings.visible;
    this.#timers = surroundings.timers ?? systemTimers;
    this.#log = surroundings.log ?? console;
  }

  /**
   * The log of a job beyond `after`, then what happens, each event once and in order.
   *
   * @param {string} job
   * @param {Omit<FollowOptions, "signal" | "onConnection">} options
   * @returns {() => void} ends it
   */
  follow(job, options) {
    const listener = new Listener(options, this.#log);
    let last = Number(String(options.after ?? 0).split("-").at(-1));
    return this.#subscribe((n) => ({
      wish: () => ({ do: "follow", n, job, after: last }),
      hear: (news) => {
        if ("event" in news && news.event.seq > last) {
          last = news.event.seq;
          listener.hear(news.event);
          return !news.event.final;
        }
        if ("end" in news) listener.end();
        if ("error" in news) this.#fail(options.onError, news.error);
        return !("end" in news || "error" in news);
      },
    }));
  }

  /**
   * Where each job of a list stands, now and whenever that changes; `listed` is false when it has
   * left the list.
   *
   * @param {ListFilter} filter
   * @param {(snapshot: Snapshot) => unknown} callback
   * @param {ListOptions} [options]
   * @returns {() => void} ends it
   */
  list(filter, callback, options = {}) {
    const listing = new Listing("", this.#log);
    listing.join({ tell: guarded(this.#log, callback), options, ready: true });
    return this.#subscribe((n) => ({
      wish: () => {
        listing.begin(); // what a hub knows comes from its beginning
        return { do: "list", n, filter };
      },
      hear: (news) => {
        if ("snapshot" in news) listing.take(news.snapshot);
        if ("whole" in news) listing.whole();
        if ("error" in news) this.#fail(options.onError, news.error);
        return !("error" in news);
      },
    }));
  }

  /**
   * What the server answers to GET, again and again, for all tabs together, while one that wants it
   * is visible. The last known answer comes first.
   *
   * @param {string} path with its query
   * @param {number} seconds between two requests; of several wishes the shortest counts
   * @param {PollCallback} callback
   * @returns {() => void} ends it
   */
  poll(path, seconds, callback) {
    const tell = guarded(this.#log, callback);
    return this.#subscribe((n) => ({
      wish: () => ({ do: "poll", n, path, seconds }),
      hear: (news) => {
        if ("answer" in news) tell(news.answer, news.problem && new WindlassError(news.problem));
        return true;
      },
    }));
  }

  /**
   * Asks now for what is polled at this path, whatever its query: something was done to it.
   *
   * @param {string} path
   */
  refresh(path) {
    this.#send({ do: "refresh", path });
  }

  /**
   * Asks the server again, now: after a sign-in, or because somebody does not want to wait.
   *
   * @param {string | null} [who] whoever came in: what the hub knows from before is not for them
   */
  restart(who = null) {
    if (this.#port === null) this.#entered = who ?? this.#entered;
    this.#send({ do: "restart", who });
  }

  /**
   * How the server is reached: now, and at each change.
   *
   * @param {(state: Connection) => unknown} callback
   * @returns {() => void} ends it
   */
  connection(callback) {
    const tell = guarded(this.#log, callback);
    this.#watchers.add(tell);
    this.#begin();
    tell(this.#connection);
    return () => void this.#watchers.delete(tell);
  }

  /**
   * Whether somebody looks at the tab.
   *
   * @param {boolean} visible
   */
  show(visible) {
    this.#visible = visible;
    this.#send({ do: "visible", visible });
  }

  /** The tab goes, perhaps not for ever: see `greet`. */
  leave() {
    this.#send({ do: "bye" });
  }

  /** Says who is here, and all that is wanted. */
  greet() {
    this.#send({ do: "hello", visible: this.#visible, lock: this.#lock });
    if (this.#entered !== null) this.#send({ do: "restart", who: this.#entered });
    this.#entered = null;
    for (const { wish } of this.#wanted.values()) this.#send(wish());
  }

  /** @param {(n: number) => Subscription} make */
  #subscribe(make) {
    const n = this.#next++;
    const subscription = make(n);
    this.#wanted.set(n, subscription);
    this.#begin();
    this.#send(subscription.wish());
    return () => {
      if (this.#wanted.delete(n)) this.#send({ do: "stop", n });
    };
  }

  /** Opens the way to the hub, once; what was wanted meanwhile is said when it is open. */
  #begin() {
    if (this.#port !== null || this.#opening) return;
    this.#opening = true;
    Promise.all([this.#open(), this.#alive]).then(
      ([port, lock]) => this.#opened(port, lock),
      (error) => {
        this.#log.warn("windlass: no worker could be started; it is tried again", error);
        this.#opening = false;
        this.#timers.setTimeout(() => this.#begin(), BEAT);
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
    port.onmessage = ({ data }) => this.#port === port && this.#hear(data);
    this.greet();
    this.#timers.setTimeout(() => this.#beat(port), BEAT);
  }

  /**
   * Waits for: its time. Guarantees: the hub hears of the tab every 15 seconds, and a hub that does
   * not answer is replaced. Stops: with its port.
   *
   * @param {Port} port
   */
  #beat(port) {
    if (this.#port !== port) return;
    this.#unanswered += 1;
    if (this.#unanswered > PATIENCE) {
      this.#log.warn("windlass: the worker behind this page is gone; another is started");
      port.close();
      this.#port = null;
      this.#begin();
      return;
    }
    this.#send({ do: "ping" });
    this.#timers.setTimeout(() => this.#beat(port), BEAT);
  }

  /** @param {Heard} said */
  #hear(said) {
    this.#unanswered = 0;
    if ("stranger" in said) this.greet();
    if ("connection" in said) this.#changed(said.connection);
    if (!("n" in said)) return;
    const subscription = this.#wanted.get(said.n);
    if (subscription === undefined || subscription.hear(said)) return;
    this.#wanted.delete(said.n);
    this.#send({ do: "stop", n: said.n });
  }

  /** @param {ToldConnection} told */
  #changed(told) {
    this.#connection = { ...told, error: told.error && new WindlassError(told.error) };
    for (const tell of this.#watchers) tell(this.#connection);
  }

  /**
   * @param {((error: WindlassError) => unknown) | undefined} failed
   * @param {Told} problem
   */
  #fail(failed, problem) {
    guarded(this.#log, failed ?? ((error) => this.#log.error(error)))(new WindlassError(problem));
  }

  /** @param {Said} said */
  #send(said) {
    this.#port?.postMessage(said);
  }
}
