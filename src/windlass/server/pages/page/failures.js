/** What failed most, by task and error: look at the newest, open all of them, do them again. */

/** @import { Page } from "../page.js" */
/** @import { View } from "../page.js" */
/** @import { Job } from "../client/windlass.js" */
/** @import { Group } from "../failures/groups.js" */
/** @import { Since } from "../jobs/wanted.js" */

import { Groups } from "../failures/groups.js";
import { workBar } from "../jobs/bar.js";
import { address, SINCE, sinceOf } from "../jobs/wanted.js";
import { Worker } from "../jobs/work.js";
import { number, plural, short } from "../format.js";
import { live } from "../live/tab.js";
import { to } from "../router.js";
import { api, may } from "../session.js";
import { h } from "../view/dom.js";
import { bar, button, copyButton, empty, jobLink, title, trouble, when } from "../view/parts.js";

const PERIOD = 5; // seconds
const MINUTE = 60_000; // milliseconds, after which the time looked back at is moved on
const MOST = 100; // groups

/** @type {Page} */
export function failuresPage(view) {
  const screen = new Screen(view);
  view.title("Failures");
  view.onMove(() => screen.moved());
  view.onClose(() => screen.close());
  return () => screen.looks();
}

class Screen {
  #groups = new Groups();
  /** @type {unknown} */
  #error = null;
  /**
   * The newest job of each group that is open; null while it is asked for.
   *
   * @type {Map<string, Job | Error | null>}
   */
  #open = new Map();
  #view;
  #worker;
  /** @type {Since} */
  #since;
  #timer;
  #stop = () => {};

  /** @param {View} view */
  constructor(view) {
    this.#view = view;
    this.#worker = new Worker(() => view.changed());
    this.#since = sinceOf(view.place.query.get("since")) ?? "day";
    this.#timer = setInterval(() => document.hidden || this.#follow(), MINUTE);
    this.#follow();
  }

  close() {
    clearInterval(this.#timer);
    this.#stop();
  }

  moved() {
    this.#since = sinceOf(this.#view.place.query.get("since")) ?? "day";
    this.#groups.clear();
    this.#open.clear();
    this.#follow();
  }

  #follow() {
    const query = new URLSearchParams({ since: this.#begin(), limit: String(MOST) });
    this.#stop();
    this.#stop = live.poll(`/api/failures?${query}`, PERIOD, (answer, wrong) => {
      if (answer !== null) this.#groups.take(answer);
      this.#error = wrong;
      this.#view.changed();
    });
  }

  #begin() {
    const begin = Math.floor(Date.now() / MINUTE) * MINUTE - SINCE[this.#since] * 1000;
    return new Date(begin).toISOString();
  }

  looks() {
    const { shown } = this.#groups;
    return [
      title("Failures"),
      this.#tabs(),
      h("div", { class: "jobs-bar", role: "toolbar", "aria-label": "Failures" }, this.#bar()),
      this.#error !== null && trouble(this.#error, () => live.refresh("/api/failures")),
      shown === null
        ? this.#error === null && h("div", { class: "skeleton" })
        : shown.length === 0
          ? empty(
              `Nothing failed in the last ${this.#since}`,
              "Jobs that are out of retries show here, by task and error.",
              null,
              "check",
            )
          : h(
              "ul",
              { class: "failures" },
              shown.map((group) => this.#group(group, largest(shown))),
            ),
    ];
  }

  #tabs() {
    return h(
      "nav",
      { class: "tabs", "aria-label": "Time" },
      Object.keys(SINCE).map((since) =>
        h(
          "a",
          {
            key: since,
            href: to("failures", { since }),
            "aria-current": since === this.#since ? "page" : undefined,
          },
          `Last ${since}`,
        ),
      ),
    );
  }

  #bar() {
    const { work } = this.#worker;
    if (work !== null) return workBar(work);
    const { answer, stirred } = this.#groups;
    const many = answer && plural(answer.lookedAt, "job");
    return [
      h(
        "span",
        { class: "total soft small" },
        answer && (answer.capped ? `the last ${many} that failed` : `${many} failed`),
      ),
      stirred &&
        button(
          "Sort again",
          () => {
            this.#groups.sort();
            this.#view.changed();
          },
          { slim: true },
        ),
    ];
  }

  /** @param {Group} group @param {number} most */
  #group(group, most) {
    const { key, task, code, type, message, count, past } = group;
    const open = this.#open.has(key);
    return h(
      "li",
      { key, class: `card failure ${past ? "left" : ""}` },
      h(
        "div",
        { class: "size" },
        h("strong", { title: number(count) }, short(count)),
        bar((100 * count) / most, "failed", "share of the largest group"),
      ),
      h(
        "div",
        { class: "what" },
        h("h2", { class: "cut", title: task }, task),
        h("p", { class: "mono wrong said", title: message ?? code }, saying(code, type, message)),
        h(
          "p",
          { class: "small soft" },
          "last ",
          when(group.lastAt),
          ", first ",
          when(group.firstAt),
          ", newest ",
          jobLink(group.jobId),
        ),
      ),
      h(
        "div",
        { class: "ways" },
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
            href: address(this.#groups.wanted(group, this.#since)),
            "aria-label": `Jobs of ${task}, ${code}`,
          },
          "Jobs",
        ),
        may("produce") &&
          button("Retry all", () => void this.#retry(group), {
            slim: true,
            icon: "retry",
            disabled: this.#worker.busy,
            label: `Retry all of ${task}, ${code}`,
          }),
      ),
      open && h("div", { class: "newest" }, newest(this.#open.get(key) ?? null)),
    );
  }

  /** @param {Group} group */
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

  /** @param {Group} group */
  async #retry(group) {
    const { key, task, code, type, message } = group;
    const find = async () => {
      const { groups } = await api.failures({ since: this.#begin(), group: key });
      return groups.flatMap(({ jobIds }) => jobIds ?? []);
    };
    const words = `${task}, ${saying(code, type, message)}`;
    if (await this.#worker.these("retry", find, words)) live.refresh("/api/failures");
  }
}

/** @param {Group[]} groups */
const largest = (groups) => Math.max(...groups.map(({ count }) => count));

/** @param {string} code @param {string | null} type @param {string | null} message */
function saying(code, type, message) {
  const name = type !== null && type !== code ? `${code} (${type})` : code;
  return message !== null && message !== code ? `${name}: ${message}` : name;
}

/** @param {Job | Error | null} job */
function newest(job) {
  if (job === null) return h("div", { class: "skeleton" });
  if (job instanceof Error) return trouble(job);
  const text = job.lastError?.traceback ?? job.lastError?.message;
  if (!text)
    return h(
      "p",
      { class: "soft" },
      job.sealed
        ? "It was written with a key that is not held here."
        : "Nothing more is known of it.",
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
