/** Whether all is well; if not, what is stuck, why, and since when. */

/** @import { Page, View } from "../page.js" */
/** @import { Given } from "../view/dom.js" */
/** @import { Queue, Stats, Worker } from "../client/windlass.js" */
/** @import { Range } from "../overview/numbers.js" */

import { ago, number, plural, short, span } from "../format.js";
import { live } from "../live/tab.js";
import { attention, concerns } from "../overview/attention.js";
import { RANGES, failureRate, isCapped, statsPath, sum, timeline } from "../overview/numbers.js";
import { queueTable, resume } from "../overview/queues.js";
import { go, to } from "../router.js";
import { may } from "../session.js";
import { Chart, niceLength } from "../view/chart.js";
import { h } from "../view/dom.js";
import { card, title, trouble } from "../view/parts.js";

const OFTEN = 2; // seconds between two looks at queues and workers
const SELDOM = 10; // … and at what changes with the minutes
const FAILURES = "/api/failures?limit=5";

/** @type {Page} */
export function overviewPage(view) {
  view.title("");
  if (!may("survey")) {
    go(to("jobs"), { replace: true }); // whose key is for some jobs is told of no others
    return () => null;
  }
  const found = new Overview(view);
  return () => found.draw();
}

class Overview {
  /** @type {Queue[] | null} */
  queues = null;
  /** @type {Worker[] | null} */
  workers = null;
  /** @type {Stats | null} */
  stats = null;
  /** @type {any[] | null} */
  failures = null;
  /** What was not answered, by what was asked. @type {Map<string, unknown>} */
  #wrong = new Map();
  #path = "";
  #charts = [new Chart(), new Chart(), new Chart()];
  #stop = () => {};

  /** @param {View} view */
  constructor(view) {
    this.view = view;
    view.onClose(this.#poll("/api/queues", OFTEN, ({ queues }) => (this.queues = queues)));
    view.onClose(this.#poll("/api/workers", OFTEN, ({ workers }) => (this.workers = workers)));
    view.onClose(this.#poll(FAILURES, SELDOM, ({ groups }) => (this.failures = groups)));
    view.onClose(() => this.#stop());
  }

  /** @param {string} path @param {number} seconds @param {(answer: any) => void} keep */
  #poll(path, seconds, keep) {
    const [name] = path.split("?");
    return live.poll(path, seconds, (answer, error) => {
      if (answer !== null) keep(answer);
      if (error === null) this.#wrong.delete(name);
      else this.#wrong.set(name, error);
      this.view.changed();
    });
  }

  #trouble() {
    const again = () => this.#wrong.forEach((_, name) => live.refresh(name));
    const [error] = this.#wrong.values();
    return error !== undefined && trouble(error, again);
  }

  /** @returns {Range} */
  get range() {
    return this.view.place.query.get("range") === "day" ? "day" : "hour";
  }

  /** Ask for other numbers when another range is chosen, and when a new column begins. */
  #ask() {
    const path = statsPath(this.range, Date.now());
    if (path === this.#path) return;
    this.#path = path;
    this.#stop();
    this.#stop = this.#poll(path, SELDOM, (answer) => (this.stats = answer));
  }

  /** @returns {Given} */
  draw() {
    this.#ask();
    const { queues, workers } = this;
    if (queues === null || workers === null) {
      return [title("Overview"), this.#wrong.size === 0 ? skeleton() : this.#trouble()];
    }
    return [
      title("Overview", ranges(this.range)),
      this.#trouble(),
      attention(concerns(queues, workers), resume),
      this.#tiles(queues, workers),
      this.#plots(),
      queueTable(queues),
      this.#failed(),
    ];
  }

  /** @param {Queue[]} queues @param {Worker[]} workers */
  #tiles(queues, workers) {
    const all = (/** @type {"queued" | "running"} */ state) =>
      short(sum(queues.map((one) => one.counts[state] ?? 0))) +
      (isCapped(queues, state) ? "+" : "");
    const oldest = queues
      .map((one) => one.oldestQueuedAt)
      .filter((time) => time !== null)
      .sort()[0];
    const line = this.stats && timeline(this.stats, this.range);
    const bad = line && failureRate(line);
    const deaf = workers.filter((one) => one.deaf).length;
    return h(
      "ul",
      { class: "tiles" },
      tile(
        "Waiting",
        all("queued"),
        oldest ? `the oldest since ${ago(oldest).replace(" ago", "")}` : "no line",
        to("jobs", { state: "queued" }),
      ),
      tile(
        "Running",
        all("running"),
        `of ${plural(sum(workers.map((one) => one.running + one.free)), "slot")}`,
        to("jobs", { state: "running" }),
      ),
      tile(
        "Done",
        line ? short(sum(line.succeeded)) : "…",
        RANGES[this.range].name.toLowerCase(),
        to("jobs", { state: "succeeded" }),
      ),
      tile(
        "Went wrong",
        bad === null ? "–" : percent(bad),
        line ? `${number(sum(line.failed))} failed, ${number(sum(line.retried))} tried again` : "",
        to("failures"),
        bad !== null && bad >= 0.2,
      ),
      tile(
        "Workers",
        number(workers.length),
        deaf > 0 ? `${deaf} deaf` : workers.length > 0 ? "all hear" : "none is alive",
        to("workers"),
        deaf > 0 || workers.length === 0,
      ),
    );
  }

  #plots() {
    const { stats, range } = this;
    if (stats === null)
      return h("div", { class: "plots" }, h("div", { class: "skeleton plot-room" }));
    const line = timeline(stats, range);
    const shared = { times: line.times, changed: () => this.view.changed() };
    const rate = line.times.map((_, place) => {
      const bad = line.failed[place] + line.retried[place];
      const all = bad + line.succeeded[place] + line.canceled[place];
      return all > 0 ? bad / all : null;
    });
    const [ended, wrong, long] = this.#charts;
    return h(
      "div",
      { class: "plots" },
      h(
        "div",
        { class: "card" },
        ended.draw({
          ...shared,
          kind: "columns",
          format: short,
          label: range === "hour" ? "Attempts a minute" : "Attempts in half an hour",
          series: [
            { name: "succeeded", colour: "succeeded", values: line.succeeded },
            { name: "tried again", colour: "retrying", values: line.retried },
            { name: "failed", colour: "failed", values: line.failed },
            { name: "canceled", colour: "canceled", values: line.canceled },
          ],
        }),
      ),
      h(
        "div",
        { class: "card" },
        wrong.draw({
          ...shared,
          kind: "lines",
          label: "Went wrong",
          format: percent,
          series: [{ name: "of all attempts", colour: "failed", values: rate }],
        }),
      ),
      h(
        "div",
        { class: "card" },
        long.draw({
          ...shared,
          kind: "lines",
          label: "How long it takes",
          format: span,
          round: niceLength,
          series: [
            { name: "in line", colour: "queued", values: line.wait },
            { name: "at work", colour: "running", values: line.run },
          ],
        }),
      ),
    );
  }

  #failed() {
    const { failures } = this;
    if (failures === null || failures.length === 0) return null;
    return card(
      "What failed most",
      h(
        "ul",
        { class: "worst" },
        failures.map((one) =>
          h(
            "li",
            { key: `${one.task} ${one.code} ${one.message}` },
            h("strong", { class: "bad" }, short(one.count)),
            h("a", { href: to(`jobs/${one.jobId}`), class: "cut" }, one.task),
            h("span", { class: "soft small cut message" }, one.message ?? one.code),
            h("span", { class: "soft small nowrap" }, ago(one.lastAt)),
          ),
        ),
      ),
      { beside: h("a", { class: "small", href: to("failures") }, "All failures") },
    );
  }
}

/** @param {number} part */
const percent = (part) => (part > 0 && part < 0.01 ? "< 1 %" : `${Math.round(part * 100)} %`);

/**
 * @param {string} name
 * @param {Given} value
 * @param {Given} more
 * @param {string} href
 * @param {boolean} [bad]
 */
const tile = (name, value, more, href, bad = false) =>
  h(
    "li",
    { class: "card" },
    h(
      "a",
      { href },
      h("span", { class: "soft small" }, name),
      h("strong", { class: bad ? "bad" : "" }, value),
      h("span", { class: "soft small" }, more),
    ),
  );

/** @param {Range} chosen */
const ranges = (chosen) =>
  h(
    "div",
    { class: "choice", role: "group", "aria-label": "Time" },
    /** @type {Range[]} */ (["hour", "day"]).map((one) =>
      h(
        "a",
        {
          class: "button slim",
          href: to("", one === "hour" ? {} : { range: one }),
          "aria-current": one === chosen ? "true" : undefined,
        },
        RANGES[one].name,
      ),
    ),
  );

const skeleton = () => [
  h("div", { class: "skeleton attention-room" }),
  h("div", { class: "skeleton tiles-room" }),
  h("div", { class: "skeleton plot-room" }),
];
