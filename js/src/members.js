/** What is wanted of one connection, each by the name that it has there. */

/** @import { Feed } from "./feeds.js" */
/** @import { Listing } from "./listing.js" */

import { WindlassError } from "./errors.js";

const JOBS = 100; // that the server takes on one stream
const LISTS = 20;

/**
 * What is asked for. `over` ends it, with an error or without.
 *
 * @typedef {{ over: (error?: WindlassError) => void, feed?: Feed, listing?: Listing }} Member
 */

export class Members {
  /** By a job's id, or a list's text. @type {Map<string, Member>} */
  #all = new Map();

  /** @param {() => void} changed */
  constructor(changed) {
    this.changed = changed;
  }

  get size() {
    return this.#all.size;
  }

  /** @param {string} name */
  get(name) {
    return this.#all.get(name);
  }

  values() {
    return this.#all.values();
  }

  copy() {
    return new Map(this.#all);
  }

  /** @param {Map<string, Member>} asked */
  are(asked) {
    if (asked.size !== this.#all.size) return false;
    return [...asked].every(([name, member]) => this.#all.get(name) === member);
  }

  /**
   * With `over`, it is wanted no more.
   *
   * @param {string} name
   * @param {Member} member
   */
  add(name, member) {
    const { over } = member;
    member.over = (error) => {
      if (this.#all.get(name) === member) this.#all.delete(name);
      over(error);
      this.changed();
    };
    this.#all.set(name, member);
    this.#makeRoom("feed", JOBS, "jobs");
    this.#makeRoom("listing", LISTS, "lists");
    this.changed();
    return member;
  }

  clear() {
    this.#all.clear();
  }

  /**
   * The oldest go.
   *
   * @param {"feed" | "listing"} sort
   * @param {number} most
   * @param {string} what
   */
  #makeRoom(sort, most, what) {
    const all = [...this.#all].filter(([, member]) => member[sort] !== undefined);
    for (const [name, member] of all.slice(0, Math.max(0, all.length - most))) {
      const detail = `${name} is let go: more than ${most} ${what} are wanted at once`;
      const advice = "stop following what is not looked at";
      member.over(new WindlassError({ detail, advice, code: "too_many", permanent: true }));
    }
  }
}
