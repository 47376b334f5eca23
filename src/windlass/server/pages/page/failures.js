/** Failures grouped by task and error, with traceback, job list and retry. */

/** @import { Page } from "../page-view.js" */
/** @import { PageView } from "../page-view.js" */
/** @import { Job } from "../client/windlass.js" */
/** @import { ShownGroup } from "../failures/groups.js" */
/** @import { TimeRange } from "../jobs/query.js" */

import { api } from "../api.js";
import { FailureGroups } from "../failures/groups.js";
import { progressBar } from "../jobs/toolbar.js";
import { RANGE_SECONDS, rangeOf, urlOf } from "../jobs/query.js";
import { BulkActions } from "../jobs/bulk-actions.js";
import { number, plural, compactNumber } from "../format.js";
import { live } from "../live/live.js";
import { pageUrl } from "../navigation.js";
import { may } from "../session.js";
import { h } from "../view/virtual-dom.js";
import {
  bar,
  button,
  copyButton,
  empty,
  errorNote,
  jobLink,
  title,
  when,
} from "../view/components.js";

const PERIOD = 5; // seconds
const MINUTE = 60_000; // milliseconds after which the start of the range moves on
const MAX_GROUPS = 100;

/** @type {Page} */
export function failuresPage(view) {
  const screen = new FailuresScreen(view);
  view.title("Failures");
  view.onQueryChange(() => screen.queryChanged());
  view.onClose(() => screen.close());
  return () => screen.render();
}

class FailuresScreen {
  #groups = new FailureGroups();
  /** @type {unknown} */
  #error = null;
  /**
   * Newest job of each expanded group; null while loading.
   *
   * @type {Map<string, Job | Error | null>}
   */
  #open = new Map();
  #view;
  #bulk;
  /** @type {TimeRange} */
  #range;
  #timer;
  #stop = () => {};

  /** @param {PageView} view */
  constructor(view) {
    this.#view = view;
    this.#bulk = new BulkActions(() => view.changed());
    this.#range = rangeOf(view.location.query.get("since")) ?? "day";
    this.#timer = setInterval(() => document.hidden || this.#poll(), MINUTE);
    this.#poll();
  }

  close() {
    clearInterval(this.#timer);
    this.#stop();
  }

  queryChanged() {
    this.#range = rangeOf(this.#view.location.query.get("since")) ?? "day";
    this.#groups.clear();
    this.#open.clear();
    this.#poll();
  }

  #poll() {
    const query = new URLSearchParams({ since: this.#start(), limit: String(MAX_GROUPS) });
    this.#stop();
    this.#stop = live.poll(`/api/failures?${query}`, PERIOD, (answer, problem) => {
      if (answer !== null) this.#groups.update(answer);
      this.#error = problem;
      this.#view.changed();
    });
  }

  #start() {
    const start = Math.floor(Date.now() / MINUTE) * MINUTE - RANGE_SECONDS[this.#range] * 1000;
    return new Date(start).toISOString();
  }

  render() {
    const { shown } = this.#groups;
    return [
      title("Failures"),
      this.#tabs(),
      h("div", { class: "jobs-bar", role: "toolbar", "aria-label": "Failures" }, this.#bar()),
      this.#error !== null && errorNote(this.#error, () => live.refresh("/api/failures")),
      shown === null
        ? this.#error === null && h("div", { class: "skeleton" })
        : shown.length === 0
          ? empty(
              `No failures in the last ${this.#range}`,
              "Jobs that exhausted their retries appear here, grouped by task and error.",
              null,
              "check",
            )
          : h(
              "ul",
              { class: "failures" },
              shown.map((group) => this.#group(group, largestCount(shown))),
            ),
    ];
  }

  #tabs() {
    return h(
      "nav",
      { class: "tabs", "aria-label": "Time range" },
      Object.keys(RANGE_SECONDS).map((range) =>
        h(
          "a",
          {
            key: range,
            href: pageUrl("failures", { since: range }),
            "aria-current": range === this.#range ? "page" : undefined,
          },
          `Last ${range}`,
        ),
      ),
    );
  }

  #bar() {
    const { running } = this.#bulk;
    if (running !== null) return progressBar(running);
    const { answer, outOfOrder } = this.#groups;
    const count = answer && plural(answer.scanned, "job");
    return [
      h(
        "span",
        { class: "total soft small" },
        answer && (answer.capped ? `the last ${count} that failed` : `${count} failed`),
      ),
      outOfOrder &&
        button(
          "Sort by count",
          () => {
            this.#groups.sort();
            this.#view.changed();
          },
          { slim: true },
        ),
    ];
  }

  /** @param {ShownGroup} group @param {number} largest */
  #group(group, largest) {
    const { key, task, code, type, message, count, outdated } = group;
    const open = this.#open.has(key);
    return h(
      "li",
      { key, class: `card failure ${outdated ? "left" : ""}` },
      h(
        "div",
        { class: "size" },
        h("strong", { title: number(count) }, compactNumber(count)),
        bar((100 * count) / largest, "failed", "share of the largest group"),
      ),
      h(
        "div",
        { class: "what" },
        h("h2", { class: "cut", title: task }, task),
        h(
          "p",
          { class: "mono wrong message", title: message ?? code },
          errorText(code, type, message),
        ),
        h(
          "p",
          { class: "small soft" },
          "last ",
          when(group.lastAt),
          ", first ",
          when(group.firstAt),
          ", newest job ",
          jobLink(group.jobId),
        ),
      ),
      h(
        "div",
        { class: "actions" },
        button("Traceback", () => this.#toggle(group), {
          slim: true,
          icon: "down",
          expanded: open,
          label: `Traceback of ${task}, ${code}`,
        }),
        h(
          "a",
          {
            class: "button slim",
            href: urlOf(this.#groups.query(group, this.#range)),
            "aria-label": `Jobs of ${task}, ${code}`,
          },
          "Jobs",
        ),
        may("produce") &&
          button("Retry all", () => void this.#retry(group), {
            slim: true,
            icon: "retry",
            disabled: this.#bulk.busy,
            label: `Retry all of ${task}, ${code}`,
          }),
      ),
      open && h("div", { class: "newest" }, newest(this.#open.get(key) ?? null)),
    );
  }

  /** @param {ShownGroup} group */
  async #toggle({ key, jobId }) {
    if (this.#open.delete(key)) {
      this.#view.changed();
      return;
    }
    this.#open.set(key, null);
    this.#view.changed();
    const found = await api.get(jobId).catch((/** @type {Error} */ error) => error);
    if (this.#open.has(key)) this.#open.set(key, found);
    this.#view.changed();
  }

  /** @param {ShownGroup} group */
  async #retry(group) {
    const { key, task, code, type, message } = group;
    const find = async () => {
      const { groups } = await api.failures({ since: this.#start(), group: key });
      return groups.flatMap(({ jobIds }) => jobIds ?? []);
    };
    const description = `${task}, ${errorText(code, type, message)}`;
    if (await this.#bulk.found("retry", find, description)) live.refresh("/api/failures");
  }
}

/** @param {ShownGroup[]} groups */
const largestCount = (groups) => Math.max(...groups.map(({ count }) => count));

/** @param {string} code @param {string | null} type @param {string | null} message */
function errorText(code, type, message) {
  const name = type !== null && type !== code ? `${code} (${type})` : code;
  return message !== null && message !== code ? `${name}: ${message}` : name;
}

/** @param {Job | Error | null} job */
function newest(job) {
  if (job === null) return h("div", { class: "skeleton" });
  if (job instanceof Error) return errorNote(job);
  const text = job.lastError?.traceback ?? job.lastError?.message;
  if (!text)
    return h(
      "p",
      { class: "soft" },
      job.sealed
        ? "The error is encrypted with a key that this server does not have."
        : "No further details.",
    );
  return [
    h(
      "div",
      { class: "row soft small" },
      "attempt ",
      job.lastError?.attempt,
      " of ",
      jobLink(job.id),
      copyButton(() => text, "the traceback"),
    ),
    h("pre", { class: "code", tabindex: 0 }, text),
  ];
}
