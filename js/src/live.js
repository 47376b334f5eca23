/**
 * Any number of jobs and lists on one connection, for as long as somebody wants them.
 *
 * Waits for: those who want something, and messages. Guarantees: one connection at a time, which
 * asks for all that is wanted, each job from the last event that came; when that changes, another
 * one, 50 ms later; after a failure again and again, with at most 30 seconds between, and at once
 * when the network is back, somebody looks, or the machine has slept. What the server says of one
 * job or list does not concern the others. Stops asking: when nobody wants anything, and when the
 * server refuses all of it (401), until `restart()`. A crash leaves nothing.
 */

/** @import { ConnectionState, FollowOptions, ListFilter } from "../windlass.js" */
/** @import { LiveListOptions, Snapshot, SseMessage } from "../windlass.js" */
/** @import { Context, Verdict } from "./stream.js" */
/** @import { Reader } from "./listing.js" */
/** @import { Member } from "./members.js" */
/** @import { Feed } from "./feeds.js" */

import { awake } from "./awake.js";
import { WindlassError } from "./errors.js";
import { eventOfView, trouble } from "./event.js";
import { Feeds } from "./feeds.js";
import { Following } from "./following.js";
import { queryText } from "./http.js";
import { guarded } from "./listener.js";
import { Listing } from "./listing.js";
import { Members } from "./members.js";
import { Patient } from "./patient.js";
import { keepOpen } from "./stream.js";
import { Bell } from "./waiting.js";

const GATHER = 50; // milliseconds in which changes come together
/** @type {ConnectionState} */
const IDLE = { open: false, attempt: 0, wait: 0, error: null };

export class Live {
  #context;
  #following;
  #members = new Members(() => this.#change());
  /** What the connection of now was asked for. @type {Map<string, Member>} */
  #asked = new Map();
  #line = new AbortController();
  #restarted = new Bell();
  /** @type {Set<(state: ConnectionState) => void>} */
  #watchers = new Set();
  #state = IDLE;
  #refused = false;
  /** @type {Set<() => void>} */
  #stops = new Set();
  /** @type {unknown} */
  #timer = null;
  /** @type {(() => void) | null} */
  #sleepless = null;

  /**
   * @param {Context} context
   * @param {number} keep
   */
  constructor(context, keep) {
    const http = new Patient(context.http, (error, signal) => {
      this.#refuse(error);
      return this.#restarted.heard(signal);
    });
    this.#context = { ...context, http, backoff: { ...context.backoff, attempts: Infinity } };
    const feeds = new Feeds(this.#context, keep, (feed, signal) => this.#bring(feed, signal));
    this.#following = new Following(this.#context, feeds);
  }

  /**
   * @param {string} id
   * @param {FollowOptions} options
   */
  follow(id, options) {
    const stop = this.#following.follow(id.toLowerCase(), options); // as the server writes them
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
    const listing = this.#listing(queryText(filter).slice(1));
    /** @type {Reader} */
    const reader = { tell: guarded(this.#context.log, callback), options, ready: false };
    listing.join(reader);
    guarded(this.#context.log, options.onConnection)(this.#state);
    const stop = () => {
      options.signal?.removeEventListener("abort", stop);
      listing.readers.delete(reader);
      const member = this.#members.get(listing.text);
      if (listing.readers.size === 0 && member?.listing === listing) member.over();
    };
    options.signal?.addEventListener("abort", stop);
    if (options.signal?.aborted) stop();
    return stop;
  }

  /** @param {(state: ConnectionState) => unknown} callback */
  connection(callback) {
    const tell = guarded(this.#context.log, callback);
    this.#watchers.add(tell);
    tell(this.#state);
    return () => void this.#watchers.delete(tell);
  }

  restart() {
    this.#refused = false;
    this.#restarted.ring();
    this.#begin();
  }

  close() {
    for (const stop of this.#stops) stop();
    for (const { listing } of this.#members.values()) listing?.readers.clear();
    this.#stops.clear();
    this.#members.clear();
    this.#watchers.clear();
    this.#refused = false;
    this.#begin();
  }

  /** @param {string} text */
  #listing(text) {
    const there = this.#members.get(text)?.listing;
    if (there !== undefined) return there;
    const listing = new Listing(text, this.#context.log);
    this.#members.add(text, { listing, over: (error) => error && listing.fail(error) });
    return listing;
  }

  /**
   * @param {Feed} feed
   * @param {AbortSignal} signal
   * @returns {Promise<void>}
   */
  #bring(feed, signal) {
    return new Promise((resolve, reject) => {
      if (/[,:]/.test(feed.id)) { // which part names on the stream from one another
        reject(new WindlassError({ detail: `no job ${feed.id}`, code: "not_found", status: 404 }));
        return;
      }
      const member = this.#members.add(feed.id, {
        feed,
        over: (error) => (error === undefined ? resolve() : reject(error)),
      });
      signal.addEventListener("abort", () => member.over(signal.reason), { once: true });
      feed.changed(this.#state);
    });
  }

  /** Soon, for changes come together. */
  #change() {
    this.#timer ??= this.#context.timers.setTimeout(() => {
      this.#timer = null;
      if (!this.#members.are(this.#asked)) this.#begin();
    }, GATHER);
  }

  /** Ends the connection of now; a new one begins where it was. */
  #begin() {
    this.#line.abort();
    this.#asked = new Map();
    if (this.#refused) return;
    if (this.#members.size === 0) {
      this.#rest();
      return;
    }
    this.#sleepless ??= awake(this.#context.timers, {
      broken: () => this.#refused || this.#begin(),
      seen: () => this.#refused || this.#state.open || this.#begin(),
    });
    const line = (this.#line = new AbortController());
    /** @type {import("./stream.js").Purpose} */
    const purpose = {
      where: () => this.#where(),
      take: (message) => this.#take(message),
      changed: (state) => this.#changed(state),
    };
    keepOpen(this.#context, purpose, line.signal).then(
      () => line.signal.aborted || this.#rest(),
      (error) => line.signal.aborted || this.#refuse(error),
    );
  }

  #rest() {
    this.#sleepless?.();
    this.#sleepless = null;
    this.#changed(IDLE);
  }

  /** @param {WindlassError} error */
  #refuse(error) {
    this.#refused = true;
    this.#line.abort();
    this.#changed({ ...IDLE, error });
  }

  /** @returns {[string, import("../windlass.js").Query]} */
  #where() {
    this.#asked = this.#members.copy();
    const after = [];
    const list = [];
    for (const { feed, listing } of this.#asked.values()) {
      if (feed !== undefined) after.push(`${feed.id}:${feed.log.last}`);
      if (listing !== undefined) list.push(listing.text);
      listing?.begin();
    }
    return ["/api/events", { each: true, after: after.join(",") || undefined, list }];
  }

  /**
   * @param {SseMessage} message
   * @returns {Verdict}
   */
  #take({ type, data }) {
    const said = JSON.parse(data);
    const name = said.list ?? said.jobId;
    if (name === undefined) throw trouble(type, said);
    const member = this.#asked.get(name);
    if (member === undefined) return "ignored";
    if (type === "over") this.#end(name, member, said.problem);
    else if (type === "snapshot") member.listing?.take(said);
    else if (type === "whole") member.listing?.whole();
    else {
      const verdict = member.feed?.take(eventOfView(said), this.#context.log);
      if (verdict === "ended") this.#end(name, member, null);
      if (verdict === "ignored") return "ignored";
    }
    return this.#asked.size === 0 && this.#members.size === 0 ? "ended" : "taken";
  }

  /**
   * @param {string} name
   * @param {Member} member
   * @param {import("../windlass.js").Problem | null} problem
   */
  #end(name, member, problem) {
    this.#asked.delete(name);
    member.over(problem === null ? undefined : new WindlassError(problem));
  }

  /** @param {ConnectionState} state */
  #changed(state) {
    this.#state = state;
    for (const { feed, listing } of this.#members.values()) {
      feed?.changed(state);
      for (const { options } of listing?.readers ?? []) {
        guarded(this.#context.log, options.onConnection)(state);
      }
    }
    for (const tell of this.#watchers) tell(state);
  }
}
