/** Jobs and lists on one connection, by their names on the stream. */

/** @import { Feed } from "./feeds.js" */
/** @import { ListWatch } from "./list-watch.js" */

import { WindlassError } from "../errors.js";

const MAX_JOBS = 100; // limits of the server for one stream
const MAX_LISTS = 20;

/**
 * A followed job or a watched list. `end` removes it, with or without an error.
 *
 * @typedef {{ end: (error?: WindlassError) => void, feed?: Feed, watch?: ListWatch }} Topic
 */

export class Topics {
  /** By job id or list query. @type {Map<string, Topic>} */
  #topics = new Map();

  /** @param {() => void} changed */
  constructor(changed) {
    this.changed = changed;
  }

  get size() {
    return this.#topics.size;
  }

  /** @param {string} name */
  get(name) {
    return this.#topics.get(name);
  }

  values() {
    return this.#topics.values();
  }

  copy() {
    return new Map(this.#topics);
  }

  /** @param {Map<string, Topic>} others */
  equals(others) {
    if (others.size !== this.#topics.size) return false;
    return [...others].every(([name, topic]) => this.#topics.get(name) === topic);
  }

  /**
   * Add a topic. Its `end` also removes it from here.
   *
   * @param {string} name
   * @param {Topic} topic
   */
  add(name, topic) {
    const { end } = topic;
    topic.end = (error) => {
      if (this.#topics.get(name) === topic) this.#topics.delete(name);
      end(error);
      this.changed();
    };
    this.#topics.set(name, topic);
    this.#enforceLimit("feed", MAX_JOBS, "jobs");
    this.#enforceLimit("watch", MAX_LISTS, "lists");
    this.changed();
    return topic;
  }

  clear() {
    this.#topics.clear();
  }

  /**
   * Remove the oldest topics beyond the limit.
   *
   * @param {"feed" | "watch"} kind
   * @param {number} limit
   * @param {string} noun
   */
  #enforceLimit(kind, limit, noun) {
    const topics = [...this.#topics].filter(([, topic]) => topic[kind] !== undefined);
    for (const [name, topic] of topics.slice(0, Math.max(0, topics.length - limit))) {
      const detail = `${name} was dropped: at most ${limit} ${noun} on one connection`;
      const advice = "stop subscriptions that are no longer shown";
      topic.end(new WindlassError({ detail, advice, code: "too_many", permanent: true }));
    }
  }
}
