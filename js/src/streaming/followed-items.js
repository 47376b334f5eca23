/** Registry of the jobs and lists that one connection carries, by job id or list query. */

/** @import { Feed } from "./feeds.js" */
/** @import { ListWatch } from "./list-watch.js" */

import { WindlassError } from "../errors.js";

const MAX_JOBS = 100; // limits of the server for one stream
const MAX_LISTS = 20;

/**
 * A followed job or a watched list. `end` removes it, with or without an error.
 *
 * @typedef {{ end: (error?: WindlassError) => void, feed?: Feed, watch?: ListWatch }} FollowedItem
 */

export class FollowedItems {
  /** By job id or list query. @type {Map<string, FollowedItem>} */
  #items = new Map();

  /** @param {() => void} changed */
  constructor(changed) {
    this.changed = changed;
  }

  get size() {
    return this.#items.size;
  }

  /** @param {string} name */
  get(name) {
    return this.#items.get(name);
  }

  values() {
    return this.#items.values();
  }

  copy() {
    return new Map(this.#items);
  }

  /** @param {Map<string, FollowedItem>} others */
  equals(others) {
    if (others.size !== this.#items.size) return false;
    return [...others].every(([name, item]) => this.#items.get(name) === item);
  }

  /**
   * Add an item. Its `end` also removes it from here.
   *
   * @param {string} name
   * @param {FollowedItem} item
   */
  add(name, item) {
    const { end } = item;
    item.end = (error) => {
      if (this.#items.get(name) === item) this.#items.delete(name);
      end(error);
      this.changed();
    };
    this.#items.set(name, item);
    this.#enforceLimit("feed", MAX_JOBS, "jobs");
    this.#enforceLimit("watch", MAX_LISTS, "lists");
    this.changed();
    return item;
  }

  clear() {
    this.#items.clear();
  }

  /**
   * Remove the oldest items beyond the limit.
   *
   * @param {"feed" | "watch"} kind
   * @param {number} limit
   * @param {string} noun
   */
  #enforceLimit(kind, limit, noun) {
    const items = [...this.#items].filter(([, item]) => item[kind] !== undefined);
    for (const [name, item] of items.slice(0, Math.max(0, items.length - limit))) {
      const detail = `${name} was dropped: at most ${limit} ${noun} on one connection`;
      const advice = "stop subscriptions that are no longer shown";
      item.end(new WindlassError({ detail, advice, code: "too_many", permanent: true }));
    }
  }
}
