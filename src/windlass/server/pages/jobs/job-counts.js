/** Job counts: per state where cheap, and of all matching jobs. */

/** @import { Count, Filter, Queue, State } from "../client/windlass.js" */
/** @import { Row } from "./job-list.js" */

import { api } from "../api.js";
import { number, plural, compactNumber } from "../format.js";
import { live } from "../live/live.js";
import { may } from "../session.js";
import { STATES } from "../job-state.js";

const PERIOD = 5; // seconds
const SLOW = 60; // for counts that need a scan
/**
 * States with counts per queue, and states with an index. (Flows are indexed, too, so all their
 * jobs are counted.)
 */
const COUNTED = /** @type {State[]} */ (["created", "queued", "running", "retrying"]);
const INDEXED = /** @type {State[]} */ (["failed", "canceled"]);
const CAP = 10_000; // limit of the server's count

/**
 * Format a count, which may be a lower bound.
 *
 * @param {Count} found
 */
export function countText({ count, capped }) {
  if (!capped) return plural(count, "job");
  if (count === 0) return "all matching jobs";
  return `${count < CAP ? "at least" : "more than"} ${number(count)} jobs`;
}

export class JobCounts {
  /** All matching jobs. @type {Count | null} */
  total = null;
  /** @type {Map<State, Count>} */
  #found = new Map();
  /** @type {(() => void)[]} */
  #stops = [];
  #filter = "";
  /** Whether only state and queue are filtered: only then the per-queue counts apply. */
  #plain = true;
  /** All matching rows, if they fit on the page: they need no request. @type {Row[] | null} */
  #rows = null;
  #request = 0;
  #changed;

  /** @param {() => void} changed @param {Filter} filter the initial filter */
  constructor(changed, { state, queue, ...others }) {
    this.#changed = changed;
    this.#plain = Object.keys(others).length === 0;
  }

  /** @param {Filter} filter its states are ignored */
  follow({ state, ...filter }) {
    const query = queryOf(filter);
    if (this.#stops.length > 0 && this.#filter === query.toString()) return;
    this.close();
    this.#filter = query.toString();
    this.#found.clear();
    const { queue, ...others } = filter;
    this.#plain = Object.keys(others).length === 0;
    this.#changed();
    this.#stops = (filter.flowId === undefined ? INDEXED : STATES).map((state) => {
      const path = `/api/jobs/count?${queryOf({ ...filter, state })}`;
      const period = this.#plain ? PERIOD : SLOW;
      return live.poll(path, period, (answer) => answer && this.#set(state, answer));
    });
    if (!this.#plain || !may("monitor")) return;
    const names = queue === undefined ? null : [queue].flat();
    this.#stops.push(
      live.poll("/api/queues", PERIOD, (answer) => answer && this.#add(answer.queues, names)),
    );
  }

  /**
   * Count matching jobs once: the count may be slow.
   *
   * @param {Filter} filter
   * @param {Row[] | null} rows all of them, if they fit on the page
   */
  async countTotal(filter, rows) {
    const request = (this.#request += 1);
    this.total = rows === null ? null : { count: rows.length, capped: false };
    this.#rows = filter.state === undefined ? rows : null;
    this.#changed();
    if (rows !== null) return;
    try {
      const found = await api.count(filter);
      if (request === this.#request) this.total = found;
      this.#changed();
    } catch {
      // The list shows the error; an unknown count is not shown.
    }
  }

  close() {
    for (const stop of this.#stops) stop();
    this.#stops = [];
  }

  /** Whether a count is, or may become, available. @param {State} state */
  has(state) {
    if (!this.#plain || INDEXED.includes(state)) return true;
    return COUNTED.includes(state) && may("monitor");
  }

  /** @param {State} state */
  text(state) {
    if (!this.#plain && this.#rows !== null) {
      return String(this.#rows.filter((row) => row.state === state && !row.gone).length);
    }
    const found = this.#found.get(state);
    return found === undefined ? "" : compactNumber(found.count) + (found.capped ? "+" : "");
  }

  /** @param {State} state @param {Count} count */
  #set(state, count) {
    this.#found.set(state, count);
    this.#changed();
  }

  /** @param {Queue[]} queues @param {string[] | null} names */
  #add(queues, names) {
    const some = queues.filter(({ name }) => names === null || names.includes(name));
    for (const state of COUNTED) {
      const count = some.reduce((sum, queue) => sum + (queue.counts[state] ?? 0), 0);
      this.#set(state, { count, capped: some.some((queue) => queue.capped.includes(state)) });
    }
  }
}

/** @param {Filter} filter */
function queryOf(filter) {
  const pairs = Object.entries(filter).flatMap(([name, value]) =>
    [value].flat().map((item) => [name, String(item)]),
  );
  return new URLSearchParams(pairs);
}
