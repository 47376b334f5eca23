/**
 * How many jobs there are: of each state where that is known without a search, and of what matches.
 */

/** @import { Count, Filter, Queue, State } from "../client/windlass.js" */
/** @import { Row } from "./list.js" */

import { number, plural, short } from "../format.js";
import { live } from "../live/tab.js";
import { api, may } from "../session.js";
import { STATES } from "../view/parts.js";

const PERIOD = 5; // seconds
const SELDOM = 60; // for what has to be looked through
/**
 * Those whose number is kept for each queue, and those that have an index of their own. (So has a
 * flow: of its jobs, all are counted.)
 */
const KEPT = /** @type {State[]} */ (["created", "queued", "running", "retrying"]);
const INDEXED = /** @type {State[]} */ (["failed", "canceled"]);
const CAP = 10_000; // up to which the server counts

/**
 * In words: what the server counted is exact, or a beginning.
 *
 * @param {Count} found
 */
export function amount({ count, capped }) {
  if (!capped) return plural(count, "job");
  if (count === 0) return "all jobs that match";
  return `${count < CAP ? "at least" : "more than"} ${number(count)} jobs`;
}

export class Counts {
  /** All that match. @type {Count | null} */
  total = null;
  /** @type {Map<State, Count>} */
  #found = new Map();
  /** @type {(() => void)[]} */
  #stops = [];
  #filter = "";
  /** Whether nothing but states and queues narrows: only then are there numbers that are kept. */
  #plain = true;
  /** All that match, if they are on the page: they are seen, not asked for. @type {Row[] | null} */
  #seen = null;
  #asked = 0;
  #changed;

  /** @param {() => void} changed @param {Filter} filter the first, before anything is asked */
  constructor(changed, { state, queue, ...others }) {
    this.#changed = changed;
    this.#plain = Object.keys(others).length === 0;
  }

  /** @param {Filter} filter whose states do not count */
  follow({ state, ...filter }) {
    const query = queryOf(filter);
    if (this.#stops.length > 0 && this.#filter === query.toString()) return;
    this.close();
    this.#filter = query.toString();
    this.#found.clear();
    const { queue, ...others } = filter;
    this.#plain = Object.keys(others).length === 0;
    this.#changed();
    this.#stops = (filter.flowId === undefined ? INDEXED : STATES).map((one) => {
      const path = `/api/jobs/count?${queryOf({ ...filter, state: one })}`;
      const period = this.#plain ? PERIOD : SELDOM;
      return live.poll(path, period, (answer) => answer && this.#put(one, answer));
    });
    if (!this.#plain || !may("survey")) return;
    const names = queue === undefined ? null : [queue].flat();
    this.#stops.push(
      live.poll("/api/queues", PERIOD, (answer) => answer && this.#add(answer.queues, names)),
    );
  }

  /**
   * How many match, asked once: it may be a long search.
   *
   * @param {Filter} filter
   * @param {Row[] | null} seen all of them, if they are on the page
   */
  async ask(filter, seen) {
    const asked = (this.#asked += 1);
    this.total = seen === null ? null : { count: seen.length, capped: false };
    this.#seen = filter.state === undefined ? seen : null;
    this.#changed();
    if (seen !== null) return;
    try {
      const found = await api.count(filter);
      if (asked === this.#asked) this.total = found;
      this.#changed();
    } catch {
      // The list tells what is wrong; a number that is not known is not shown.
    }
  }

  close() {
    for (const stop of this.#stops) stop();
    this.#stops = [];
  }

  /** Whether there is, or may be, a number. @param {State} state */
  has(state) {
    if (!this.#plain || INDEXED.includes(state)) return true;
    return KEPT.includes(state) && may("survey");
  }

  /** @param {State} state */
  text(state) {
    if (!this.#plain && this.#seen !== null) {
      return String(this.#seen.filter((row) => row.state === state && !row.gone).length);
    }
    const found = this.#found.get(state);
    return found === undefined ? "" : short(found.count) + (found.capped ? "+" : "");
  }

  /** @param {State} state @param {Count} count */
  #put(state, count) {
    this.#found.set(state, count);
    this.#changed();
  }

  /** @param {Queue[]} queues @param {string[] | null} names */
  #add(queues, names) {
    const some = queues.filter(({ name }) => names === null || names.includes(name));
    for (const state of KEPT) {
      const count = some.reduce((sum, one) => sum + (one.counts[state] ?? 0), 0);
      this.#put(state, { count, capped: some.some((one) => one.capped.includes(state)) });
    }
  }
}

/** @param {Filter} filter */
function queryOf(filter) {
  const pairs = Object.entries(filter).flatMap(([name, value]) =>
    [value].flat().map((one) => [name, String(one)]),
  );
  return new URLSearchParams(pairs);
}
