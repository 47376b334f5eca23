/**
 * The jobs of one page, as they were found, and where each stands now. Rows never move: what is new
 * is counted until somebody wants to see it, and what no longer fits stays where it is.
 */

/** @import { Filter, JobSummary, Snapshot } from "../client/windlass.js" */
/** @import { Wanted } from "./wanted.js" */

import { live } from "../live/tab.js";
import { api } from "../session.js";
import { ended } from "../view/parts.js";
import { asked, fits } from "./wanted.js";

export const PAGE = 50;
const ROUNDS = 20; // answers that one page may be put together of: the server looks in stretches
const PERIOD = 2000; // milliseconds between two looks at rows that nobody tells of
const SOON = 250;
const ALONE = 8; // rows that are asked for one by one, in one look
const MOST_FRESH = 10 * PAGE; // that are remembered: a page may be open for days

/** @typedef {JobSummary & { gone: boolean }} Row `gone`: it was deleted */

export class JobList {
  /** @type {Row[] | null} */
  rows = null;
  /** Leads to the next page. @type {string | null} */
  cursor = null;
  /** @type {unknown} */
  error = null;
  loading = false;
  /** Jobs that were not there when the page was loaded. @type {Set<string>} */
  fresh = new Set();
  /** @type {Wanted} */
  #wanted = { values: {}, since: null, cursor: null };
  /** What the server was asked. @type {Filter} */
  filter = {};
  /** @type {Map<string, Row>} */
  #known = new Map();
  /** Rows of which something changed that is not told. @type {Set<string>} */
  #doubtful = new Set();
  /** Rows that the watched list tells of. @type {Set<string>} */
  #watched = new Set();
  #controller = new AbortController();
  #stop = () => {};
  #looking = false;
  #changed;

  /** @param {() => void} changed */
  constructor(changed) {
    this.#changed = changed;
    this.timer = setInterval(() => document.hidden || void this.#look(), PERIOD);
  }

  /** Load a page. What is shown stays until the answer is there. @param {Wanted} wanted */
  async open(wanted) {
    this.#controller.abort();
    this.#stop();
    const controller = (this.#controller = new AbortController());
    const same = wanted === this.#wanted;
    this.#wanted = wanted;
    this.filter = asked(wanted);
    this.loading = true;
    this.error = null;
    this.#changed();
    try {
      this.#show(await this.#page(this.filter, wanted.cursor, controller.signal));
    } catch (error) {
      if (controller.signal.aborted) return;
      this.error = error;
      if (!same) this.rows = null; // they were found by other filters
    }
    this.loading = false;
    this.#changed();
  }

  /** Something was done to these rows, and how they stand is wanted now. */
  refresh() {
    for (const { id } of this.rows ?? []) this.#doubtful.add(id);
    void this.#look();
  }

  close() {
    clearInterval(this.timer);
    this.#controller.abort();
    this.#stop();
  }

  /** Whether a row is still what was asked for. @param {Row} row */
  fits(row) {
    return !row.gone && fits(this.#wanted, row);
  }

  /**
   * A page, full unless it is the last. One answer of the server may be short, or empty, where what
   * fits is rare.
   *
   * @param {Filter} filter
   * @param {string | null} cursor
   * @param {AbortSignal} signal
   */
  async #page(filter, cursor, signal) {
    /** @type {JobSummary[]} */
    const jobs = [];
    for (let round = 0; round < ROUNDS; round += 1) {
      const limit = PAGE - jobs.length;
      const answer = await api.page({ ...filter, limit, cursor }, { signal });
      jobs.push(...answer.jobs);
      cursor = answer.cursor;
      if (cursor === null || jobs.length >= PAGE) break;
    }
    return { jobs, cursor };
  }

  /** @param {{ jobs: JobSummary[], cursor: string | null }} page */
  #show({ jobs, cursor }) {
    this.rows = jobs.map((job) => ({ ...job, gone: false }));
    this.cursor = cursor;
    this.#known = new Map(this.rows.map((row) => [row.id, row]));
    this.#doubtful.clear();
    this.#watched.clear();
    this.fresh.clear();
    if (this.#wanted.cursor !== null) return;
    this.#stop = live.list({ ...this.filter, limit: PAGE }, (said) => this.#take(said), {
      onError: (error) => {
        this.error = error;
        this.#changed();
      },
    });
  }

  /** @param {Snapshot} said */
  #take(said) {
    const row = this.#known.get(said.id);
    if (row === undefined) {
      this.#takeOther(said);
      return;
    }
    if (said.listed) this.#watched.add(said.id);
    else this.#watched.delete(said.id);
    if (said.state === null) {
      row.gone = true;
    } else if (said.seq > row.seq) {
      const { seq, state, percent, stage, phase } = said;
      if (state !== row.state) this.#doubt(row);
      Object.assign(row, { seq, state, percent, stage, phase });
    }
    this.#changed();
  }

  /** One that is not shown: new, unless it moved up from the next page. @param {Snapshot} said */
  #takeOther({ id, state, listed }) {
    const last = this.rows?.at(-1);
    const { state: states } = this.#wanted.values;
    const before = this.fresh.size;
    if (listed) {
      if (this.cursor === null || last === undefined || id > last.id) this.fresh.add(id);
      const [oldest] = this.fresh;
      if (this.fresh.size > MOST_FRESH) this.fresh.delete(oldest);
    } else if (state === null || (states !== undefined && !states.includes(state))) {
      this.fresh.delete(id);
    }
    if (this.fresh.size !== before) this.#changed();
  }

  /** @param {Row} row */
  #doubt(row) {
    this.#doubtful.add(row.id);
    setTimeout(() => void this.#look(), SOON);
  }

  /**
   * Waits for: its time, or a row in doubt. Guarantees: one look at a time; rows that may change and
   * of which nobody tells are asked for again, together if they are still on the page, else some at
   * a time. Stops: with the page. A crash leaves nothing.
   */
  async #look() {
    const rows = (this.rows ?? []).filter((row) => !row.gone && this.#unsure(row));
    if (rows.length === 0 || this.#looking || this.loading) return;
    const { signal } = this.#controller;
    this.#looking = true;
    try {
      const found = await this.#page(this.#same(), this.#wanted.cursor, signal);
      for (const job of found.jobs) this.#learn(job);
      const seen = new Set(found.jobs.map(({ id }) => id));
      const alone = rows.filter(({ id }) => !seen.has(id)).slice(0, ALONE);
      await Promise.all(alone.map((row) => this.#ask(row, signal)));
    } catch {
      // The line is broken, which the menu tells; the next look comes.
    }
    this.#looking = false;
    if (!signal.aborted) this.#changed();
  }

  /** @param {Row} row */
  #unsure(row) {
    return this.#doubtful.has(row.id) || (!ended(row.state) && !this.#watched.has(row.id));
  }

  /** What finds the rows of this page again, though there are newer ones. */
  #same() {
    const [first] = this.rows ?? [];
    if (this.#wanted.cursor !== null || first === undefined) return this.filter;
    const createdTo = new Date(new Date(first.createdAt).getTime() + 1).toISOString();
    return this.filter.createdTo === undefined ? { ...this.filter, createdTo } : this.filter;
  }

  /** @param {Row} row @param {AbortSignal} signal */
  async #ask(row, signal) {
    this.#doubtful.add(row.id);
    try {
      this.#learn(await api.get(row.id, { signal }));
    } catch (error) {
      if (/** @type {any} */ (error).status !== 404) throw error;
      row.gone = true;
    }
  }

  /** @param {JobSummary} job */
  #learn(job) {
    const row = this.#known.get(job.id);
    if (row === undefined || job.seq < row.seq) return;
    Object.assign(row, job);
    this.#doubtful.delete(job.id);
  }
}
