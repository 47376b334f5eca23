/**
 * Rows of one list page with live updates. Rows never move: new jobs are only counted, and jobs
 * that no longer match stay in place.
 */

/** @import { Filter, JobSummary, Snapshot } from "../client/windlass.js" */
/** @import { JobQuery } from "./query.js" */

import { api } from "../api.js";
import { live } from "../live/live.js";
import { ended } from "../job-state.js";
import { filterOf, matches } from "./query.js";

export const PAGE = 50;
const MAX_REQUESTS = 20; // per page: the server scans in parts and may return short answers
const PERIOD = 2000; // milliseconds between refreshes of rows without live updates
const DELAY = 250; // milliseconds before a refresh after a state change
const MAX_SINGLE = 8; // rows requested one by one, per refresh
const MAX_NEW = 10 * PAGE; // new jobs remembered: a page may be open for days

/** @typedef {JobSummary & { gone: boolean }} Row `gone`: deleted */

export class JobList {
  /** @type {Row[] | null} */
  rows = null;
  /** Cursor of the next page. @type {string | null} */
  cursor = null;
  /** @type {unknown} */
  error = null;
  loading = false;
  /** Jobs created after the page was loaded. @type {Set<string>} */
  newJobs = new Set();
  /** @type {JobQuery} */
  #query = { values: {}, range: null, cursor: null };
  /** Filter of the loaded page. @type {Filter} */
  filter = {};
  /** @type {Map<string, Row>} */
  #known = new Map();
  /** Rows with changes that snapshots do not contain. @type {Set<string>} */
  #stale = new Set();
  /** Rows with live updates. @type {Set<string>} */
  #watched = new Set();
  #controller = new AbortController();
  #stop = () => {};
  #refreshing = false;
  #changed;

  /** @param {() => void} changed */
  constructor(changed) {
    this.#changed = changed;
    this.timer = setInterval(() => document.hidden || void this.#refresh(), PERIOD);
  }

  /** Load a page. Current rows stay until the response. @param {JobQuery} query */
  async open(query) {
    this.#controller.abort();
    this.#stop();
    const controller = (this.#controller = new AbortController());
    const same = query === this.#query;
    this.#query = query;
    this.filter = filterOf(query);
    this.loading = true;
    this.error = null;
    this.#changed();
    try {
      this.#show(await this.#page(this.filter, query.cursor, controller.signal));
    } catch (error) {
      if (controller.signal.aborted) return;
      this.error = error;
      if (!same) this.rows = null; // they match other filters
    }
    this.loading = false;
    this.#changed();
  }

  /** Reload all rows after an action. */
  refresh() {
    for (const { id } of this.rows ?? []) this.#stale.add(id);
    void this.#refresh();
  }

  close() {
    clearInterval(this.timer);
    this.#controller.abort();
    this.#stop();
  }

  /** Whether a row still matches the query. @param {Row} row */
  matches(row) {
    return !row.gone && matches(this.#query, row);
  }

  /**
   * Load a page, full unless it is the last. Single answers may be short or empty when matches are
   * rare.
   *
   * @param {Filter} filter
   * @param {string | null} cursor
   * @param {AbortSignal} signal
   */
  async #page(filter, cursor, signal) {
    /** @type {JobSummary[]} */
    const jobs = [];
    for (let round = 0; round < MAX_REQUESTS; round += 1) {
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
    this.#stale.clear();
    this.#watched.clear();
    this.newJobs.clear();
    if (this.#query.cursor !== null) return;
    this.#stop = live.list({ ...this.filter, limit: PAGE }, (snapshot) => this.#update(snapshot), {
      onError: (error) => {
        this.error = error;
        this.#changed();
      },
    });
  }

  /** @param {Snapshot} snapshot */
  #update(snapshot) {
    const row = this.#known.get(snapshot.id);
    if (row === undefined) {
      this.#updateOther(snapshot);
      return;
    }
    if (snapshot.listed) this.#watched.add(snapshot.id);
    else this.#watched.delete(snapshot.id);
    if (snapshot.state === null) {
      row.gone = true;
    } else if (snapshot.seq > row.seq) {
      const { seq, state, percent, stage, phase } = snapshot;
      if (state !== row.state) this.#markStale(row);
      Object.assign(row, { seq, state, percent, stage, phase });
    }
    this.#changed();
  }

  /** Handle a job that is not shown: new, or from the next page. @param {Snapshot} other */
  #updateOther({ id, state, listed }) {
    const last = this.rows?.at(-1);
    const { state: states } = this.#query.values;
    const before = this.newJobs.size;
    if (listed) {
      if (this.cursor === null || last === undefined || id > last.id) this.newJobs.add(id);
      const [oldest] = this.newJobs;
      if (this.newJobs.size > MAX_NEW) this.newJobs.delete(oldest);
    } else if (state === null || (states !== undefined && !states.includes(state))) {
      this.newJobs.delete(id);
    }
    if (this.newJobs.size !== before) this.#changed();
  }

  /** @param {Row} row */
  #markStale(row) {
    this.#stale.add(row.id);
    setTimeout(() => void this.#refresh(), DELAY);
  }

  /**
   * Reload rows that may change and have no live updates: together if they are still on the page,
   * else a few at a time. One refresh runs at a time. Stops with the page.
   */
  async #refresh() {
    const rows = (this.rows ?? []).filter((row) => !row.gone && this.#needsRefresh(row));
    if (rows.length === 0 || this.#refreshing || this.loading) return;
    const { signal } = this.#controller;
    this.#refreshing = true;
    try {
      const found = await this.#page(this.#sameRows(), this.#query.cursor, signal);
      for (const job of found.jobs) this.#merge(job);
      const seen = new Set(found.jobs.map(({ id }) => id));
      const single = rows.filter(({ id }) => !seen.has(id)).slice(0, MAX_SINGLE);
      await Promise.all(single.map((row) => this.#reload(row, signal)));
    } catch {
      // The menu shows the lost connection; the next refresh follows.
    }
    this.#refreshing = false;
    if (!signal.aborted) this.#changed();
  }

  /** @param {Row} row */
  #needsRefresh(row) {
    return this.#stale.has(row.id) || (!ended(row.state) && !this.#watched.has(row.id));
  }

  /** Return a filter that matches the rows of this page, but no newer ones. */
  #sameRows() {
    const [first] = this.rows ?? [];
    if (this.#query.cursor !== null || first === undefined) return this.filter;
    const createdTo = new Date(new Date(first.createdAt).getTime() + 1).toISOString();
    return this.filter.createdTo === undefined ? { ...this.filter, createdTo } : this.filter;
  }

  /** @param {Row} row @param {AbortSignal} signal */
  async #reload(row, signal) {
    this.#stale.add(row.id);
    try {
      this.#merge(await api.get(row.id, { signal }));
    } catch (error) {
      if (/** @type {any} */ (error).status !== 404) throw error;
      row.gone = true;
    }
  }

  /** @param {JobSummary} job */
  #merge(job) {
    const row = this.#known.get(job.id);
    if (row === undefined || job.seq < row.seq) return;
    Object.assign(row, job);
    this.#stale.delete(job.id);
  }
}
