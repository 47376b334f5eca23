/**
 * One for all tabs of a browser: it holds the only stream, asks what is polled, and tells each tab
 * what it wants to know. It is a shared worker, or part of a tab where there are none.
 */

/** @import { ConnectionState, Live } from "../client/windlass.js" */
/** @import { Heard, News, Port, Said, ToldConnection, Wish } from "./messages.js" */

import { systemTimers } from "../client/src/waiting.js";
import { Windlass } from "../client/windlass.js";
import { Polls } from "./polls.js";
import { told } from "./told.js";

const GONE = 200_000; // milliseconds of silence; browsers delay a hidden tab's signs by a minute
const LOOK = 50_000;
const KEEP = 4096; // events of a followed job, for tabs that come late

/** A tab, and what it wants. */
class Tab {
  visible = false;
  here = true;
  heard = 0;
  /** It ends with the tab. @type {string | null} */
  lock = null;
  /** @type {Map<number, () => void>} */
  stops = new Map();

  /** @param {Port} port */
  constructor(port) {
    this.port = port;
  }

  /** @param {Heard} said */
  tell(said) {
    if (this.here) this.port.postMessage(said);
  }

  forget() {
    for (const stop of this.stops.values()) stop();
    this.stops.clear();
    this.here = false;
  }
}

export class Hub {
  #client;
  #asking;
  #timers;
  /** @type {Live} */
  #live;
  /** @type {Polls} */
  #polls;
  /** Whom the server told all that is known here. @type {string | null} */
  #who = null;
  /** @type {Set<Tab>} */
  #tabs = new Set();
  /** @type {ConnectionState} */
  #stream = { open: false, attempt: 0, wait: 0, error: null };
  /** @type {ToldConnection} */
  #connection = { open: false, since: new Date(), attempt: 0, wait: 0, error: null };
  /** Nothing is asked before somebody says so. */
  #refused = false;
  #looking = false;

  /** @param {import("../client/windlass.js").WindlassOptions} [options] */
  constructor(options = {}) {
    // This is <url>/assets/<digest>/live/hub.js.
    const url = new URL("../../..", import.meta.url).href;
    this.#client = new Windlass({ url, keep: KEEP, ...options });
    this.#asking = new Windlass({ url, ...options, retries: 0 }); // the next time comes anyway
    this.#timers = options.timers ?? systemTimers;
    [this.#live, this.#polls] = this.#start();
  }

  /** @returns {[Live, Polls]} */
  #start() {
    const live = this.#client.live();
    const polls = new Polls(this.#asking, this.#timers, (error) => {
      if (polls === this.#polls) this.#polled(error);
    });
    [this.#live, this.#polls] = [live, polls];
    live.connection((state) => this.#streamed(state));
    return [live, polls];
  }

  /** @param {Port} port */
  join(port) {
    const tab = new Tab(port);
    port.onmessage = ({ data }) => this.#hear(tab, data);
    port.postMessage({ pong: true });
  }

  /**
   * @param {Tab} tab
   * @param {Said} said
   */
  #hear(tab, said) {
    tab.heard = this.#timers.now();
    if (said.do === "hello") this.#greet(tab, said);
    else if (said.do === "bye") this.#drop(tab);
    else if (!this.#tabs.has(tab)) tab.port.postMessage({ stranger: true });
    else if (said.do === "ping") tab.tell({ pong: true });
    else if (said.do === "visible") this.#show(tab, said.visible);
    else if (said.do === "refresh") this.#polls.refresh(said.path);
    else if (said.do === "restart") this.#enter(said.who);
    else if (said.do === "stop") this.#stop(tab, said.n);
    else this.#want(tab, said);
  }

  /**
   * @param {Tab} tab
   * @param {{ visible: boolean, lock: string | null }} said
   */
  #greet(tab, { visible, lock }) {
    if (lock !== null && tab.lock === null) {
      tab.lock = lock;
      void navigator.locks.request(lock, () => this.#drop(tab));
    }
    tab.forget();
    tab.here = true;
    this.#tabs.add(tab);
    if (this.#refused) this.#restart(); // a page that was let in, perhaps
    tab.tell({ connection: this.#connection });
    this.#show(tab, visible);
    this.#look();
  }

  /** @param {Tab} tab */
  #drop(tab) {
    tab.forget();
    this.#tabs.delete(tab);
  }

  /**
   * @param {Tab} tab
   * @param {number} n
   */
  #stop(tab, n) {
    tab.stops.get(n)?.();
    tab.stops.delete(n);
  }

  /**
   * @param {Tab} tab
   * @param {boolean} visible
   */
  #show(tab, visible) {
    tab.visible = visible;
    this.#polls.look();
    const { open, error } = this.#stream;
    if (visible && !open && error !== null && !error.permanent) this.#live.restart();
  }

  /**
   * @param {Tab} tab
   * @param {Wish} wish
   */
  #want(tab, wish) {
    const { n } = wish;
    const tell = (/** @type {News} */ news) => tab.tell({ n, ...news });
    this.#stop(tab, n);
    if (wish.do === "follow") tab.stops.set(n, this.#follow(wish.job, wish.after, tell));
    else if (wish.do === "list") tab.stops.set(n, this.#list(wish.filter, tell));
    else tab.stops.set(n, this.#polls.join(wish, () => tab.visible, tell));
  }

  /**
   * @param {string} job
   * @param {number} after
   * @param {(news: News) => void} tell
   */
  #follow(job, after, tell) {
    return this.#live.follow(job, {
      after,
      onEvent: (event) => tell({ event }),
      onEnd: (event) => event === null && tell({ end: true }),
      onError: (error) => tell({ error: told(error) }),
    });
  }

  /**
   * @param {import("../client/windlass.js").ListFilter} filter
   * @param {(news: News) => void} tell
   */
  #list(filter, tell) {
    return this.#live.list(filter, (snapshot) => tell({ snapshot }), {
      onWhole: () => tell({ whole: true }),
      onError: (error) => tell({ error: told(error) }),
    });
  }

  /**
   * What one person was told is not for the next: nothing of it is kept, nor what is on its way,
   * and each tab says again what it wants.
   *
   * @param {string | null} who null if nobody new came in
   */
  #enter(who) {
    if (who !== null && who !== this.#who) {
      this.#who = who;
      const tabs = [...this.#tabs].filter(({ stops }) => stops.size > 0);
      for (const tab of tabs) tab.forget();
      this.#live.close();
      this.#polls.stop();
      this.#start();
      for (const tab of tabs) tab.port.postMessage({ stranger: true });
    }
    this.#restart();
  }

  #restart() {
    if (this.#refused) this.#changed({ open: false, attempt: 0, wait: 0, error: null });
    this.#refused = false;
    this.#live.restart();
    this.#polls.restart();
  }

  /**
   * While the stream is broken, nothing is polled: when it is back, all is.
   *
   * @param {ConnectionState} state
   */
  #streamed(state) {
    const back = state.open && !this.#stream.open;
    this.#stream = state;
    if (state.error?.permanent) this.#refused = true;
    else if (this.#refused) return; // by a poll; the stream is about to be
    if (state.error !== null) this.#polls.stop();
    else if (back || this.#polls.stopped) this.#polls.restart();
    if (!this.#resting) this.#changed({ ...state, error: state.error && told(state.error) });
  }

  /** Nobody follows anything: it is the polls that tell how the server is reached. */
  get #resting() {
    return !this.#stream.open && this.#stream.error === null;
  }

  /**
   * How a poll went.
   *
   * @param {import("../client/windlass.js").WindlassError | null} error
   */
  #polled(error) {
    if (this.#refused) return;
    if (error?.status === 401) {
      this.#refused = true;
      this.#polls.stop();
    } else if (!this.#resting) return;
    const lost = error !== null && (this.#refused || !error.permanent);
    this.#changed({ open: !lost, attempt: 0, wait: 0, error: lost ? told(error) : null });
  }

  /** @param {Omit<ToldConnection, "since">} state */
  #changed(state) {
    const { open, since } = this.#connection;
    const connection = { ...state, since: open === state.open ? since : new Date() };
    if (alike(this.#connection, connection)) return;
    this.#connection = connection;
    for (const tab of this.#tabs) tab.tell({ connection });
  }

  /**
   * Waits for: its time. Guarantees: a tab that crashed, of which nothing is heard any more, is
   * dropped. (One that was only frozen says again what it wants when it wakes.) Stops: with the
   * last tab.
   */
  #look() {
    if (this.#looking) return;
    this.#looking = true;
    this.#timers.setTimeout(() => {
      this.#looking = false;
      for (const tab of this.#tabs) {
        if (this.#timers.now() - tab.heard > GONE) this.#drop(tab);
      }
      if (this.#tabs.size > 0) this.#look();
    }, LOOK);
  }
}

/**
 * @param {ToldConnection} one
 * @param {ToldConnection} other
 */
function alike(one, other) {
  const of = (/** @type {ToldConnection} */ { open, attempt, wait, error }) =>
    JSON.stringify([open, attempt, wait, error?.status, error?.code, error?.detail]);
  return of(one) === of(other);
}

if ("SharedWorkerGlobalScope" in globalThis) {
  const hub = new Hub();
  addEventListener("connect", (event) => hub.join(/** @type {MessageEvent} */ (event).ports[0]));
}
