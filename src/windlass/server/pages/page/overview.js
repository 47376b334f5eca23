/** Overview: alerts, key figures, charts, queues and top failures. */

/** @import { Page, PageView } from "../page-view.js" */
/** @import { Renderable } from "../view/virtual-dom.js" */
/** @import { Queue, Stats, Worker } from "../client/windlass.js" */
/** @import { Range } from "../overview/time-series.js" */

import { ago, number, plural, compactNumber, duration } from "../format.js";
import { live } from "../live/live.js";
import { alertList, findAlerts } from "../overview/alerts.js";
import { isCapped } from "../overview/queue-counts.js";
import { RANGES, attemptSeries, errorRate, statsPath, sum } from "../overview/time-series.js";
import { queueTable, resume } from "../overview/queue-table.js";
import { navigate, pageUrl } from "../navigation.js";
import { may } from "../session.js";
import { Chart, niceDuration } from "../view/chart.js";
import { h } from "../view/virtual-dom.js";
import { card, errorNote, title } from "../view/components.js";

const FAST = 2; // seconds between polls of queues and workers
const SLOW = 10; // seconds between polls of statistics and failures
const FAILURES = "/api/failures?limit=5";

/** @type {Page} */
export function overviewPage(view) {
  view.title("");
  if (!may("monitor")) {
    navigate(pageUrl("jobs"), { replace: true }); // a restricted key may see only its jobs
    return () => null;
  }
  const overview = new Overview(view);
  return () => overview.render();
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
  /** Errors by path. @type {Map<string, unknown>} */
  #errors = new Map();
  #path = "";
  #charts = [new Chart(), new Chart(), new Chart()];
  #stop = () => {};

  /** @param {PageView} view */
  constructor(view) {
    this.view = view;
    view.onClose(this.#poll("/api/queues", FAST, ({ queues }) => (this.queues = queues)));
    view.onClose(this.#poll("/api/workers", FAST, ({ workers }) => (this.workers = workers)));
    view.onClose(this.#poll(FAILURES, SLOW, ({ groups }) => (this.failures = groups)));
    view.onClose(() => this.#stop());
  }

  /** @param {string} path @param {number} seconds @param {(answer: any) => void} keep */
  #poll(path, seconds, keep) {
    const [name] = path.split("?");
    return live.poll(path, seconds, (answer, error) => {
      if (answer !== null) keep(answer);
      if (error === null) this.#errors.delete(name);
      else this.#errors.set(name, error);
      this.view.changed();
    });
  }

  #errorNote() {
    const retry = () => this.#errors.forEach((_, name) => live.refresh(name));
    const [error] = this.#errors.values();
    return error !== undefined && errorNote(error, retry);
  }

  /** @returns {Range} */
  get range() {
    return this.view.location.query.get("range") === "day" ? "day" : "hour";
  }

  /** Poll another path when the range changes or a new column starts. */
  #pollStats() {
    const path = statsPath(this.range, Date.now());
    if (path === this.#path) return;
    this.#path = path;
    this.#stop();
    this.#stop = this.#poll(path, SLOW, (answer) => (this.stats = answer));
  }

  /** @returns {Renderable} */
  render() {
    this.#pollStats();
    const { queues, workers } = this;
    if (queues === null || workers === null) {
      return [title("Overview"), this.#errors.size === 0 ? skeleton() : this.#errorNote()];
    }
    return [
      title("Overview", ranges(this.range)),
      this.#errorNote(),
      alertList(findAlerts(queues, workers), resume),
      this.#tiles(queues, workers),
      this.#plots(),
      queueTable(queues),
      this.#topFailures(),
    ];
  }

  /** @param {Queue[]} queues @param {Worker[]} workers */
  #tiles(queues, workers) {
    const all = (/** @type {"queued" | "running"} */ state) =>
      compactNumber(sum(queues.map((queue) => queue.counts[state] ?? 0))) +
      (isCapped(queues, state) ? "+" : "");
    const oldest = queues
      .map((queue) => queue.oldestQueuedAt)
      .filter((time) => time !== null)
      .sort()[0];
    const values = this.stats && attemptSeries(this.stats, this.range);
    const errors = values && errorRate(values);
    const unresponsive = workers.filter((worker) => worker.unresponsive).length;
    return h(
      "ul",
      { class: "tiles" },
      tile(
        "Queued",
        all("queued"),
        oldest ? `oldest: ${ago(oldest).replace(" ago", "")}` : "queues empty",
        pageUrl("jobs", { state: "queued" }),
      ),
      tile(
        "Running",
        all("running"),
        `of ${plural(sum(workers.map((worker) => worker.running + worker.free)), "slot")}`,
        pageUrl("jobs", { state: "running" }),
      ),
      tile(
        "Completed",
        values ? compactNumber(sum(values.succeeded)) : "…",
        RANGES[this.range].name.toLowerCase(),
        pageUrl("jobs", { state: "succeeded" }),
      ),
      tile(
        "Error rate",
        errors === null ? "–" : percent(errors),
        values
          ? `${number(sum(values.failed))} failed, ${number(sum(values.retried))} retried`
          : "",
        pageUrl("failures"),
        errors !== null && errors >= 0.2,
      ),
      tile(
        "Workers",
        number(workers.length),
        unresponsive > 0
          ? `${unresponsive} unresponsive`
          : workers.length > 0
            ? "all healthy"
            : "none running",
        pageUrl("workers"),
        unresponsive > 0 || workers.length === 0,
      ),
    );
  }

  #plots() {
    const { stats, range } = this;
    if (stats === null)
      return h("div", { class: "plots" }, h("div", { class: "skeleton plot-placeholder" }));
    const values = attemptSeries(stats, range);
    const shared = { times: values.times, changed: () => this.view.changed() };
    const rate = values.times.map((_, index) => {
      const errors = values.failed[index] + values.retried[index];
      const all = errors + values.succeeded[index] + values.canceled[index];
      return all > 0 ? errors / all : null;
    });
    const [attemptChart, errorChart, latencyChart] = this.#charts;
    return h(
      "div",
      { class: "plots" },
      h(
        "div",
        { class: "card" },
        attemptChart.draw({
          ...shared,
          kind: "columns",
          format: compactNumber,
          label: range === "hour" ? "Attempts/min" : "Attempts per 30 min",
          series: [
            { name: "succeeded", color: "succeeded", values: values.succeeded },
            { name: "retried", color: "retrying", values: values.retried },
            { name: "failed", color: "failed", values: values.failed },
            { name: "canceled", color: "canceled", values: values.canceled },
          ],
        }),
      ),
      h(
        "div",
        { class: "card" },
        errorChart.draw({
          ...shared,
          kind: "lines",
          label: "Error rate",
          format: percent,
          series: [{ name: "failed or retried", color: "failed", values: rate }],
        }),
      ),
      h(
        "div",
        { class: "card" },
        latencyChart.draw({
          ...shared,
          kind: "lines",
          label: "Latency",
          format: duration,
          round: niceDuration,
          series: [
            { name: "queue wait", color: "queued", values: values.wait },
            { name: "run time", color: "running", values: values.run },
          ],
        }),
      ),
    );
  }

  #topFailures() {
    const { failures } = this;
    if (failures === null || failures.length === 0) return null;
    return card(
      "Top failures",
      h(
        "ul",
        { class: "top-failures" },
        failures.map((group) =>
          h(
            "li",
            { key: `${group.task} ${group.code} ${group.message}` },
            h("strong", { class: "bad" }, compactNumber(group.count)),
            h("a", { href: pageUrl(`jobs/${group.jobId}`), class: "cut" }, group.task),
            h("span", { class: "soft small cut message" }, group.message ?? group.code),
            h("span", { class: "soft small nowrap" }, ago(group.lastAt)),
          ),
        ),
      ),
      { trailing: h("a", { class: "small", href: pageUrl("failures") }, "All failures") },
    );
  }
}

/** @param {number} part */
const percent = (part) => (part > 0 && part < 0.01 ? "< 1 %" : `${Math.round(part * 100)} %`);

/**
 * @param {string} name
 * @param {Renderable} value
 * @param {Renderable} detail
 * @param {string} href
 * @param {boolean} [bad]
 */
const tile = (name, value, detail, href, bad = false) =>
  h(
    "li",
    { class: "card" },
    h(
      "a",
      { href },
      h("span", { class: "soft small" }, name),
      h("strong", { class: bad ? "bad" : "" }, value),
      h("span", { class: "soft small" }, detail),
    ),
  );

/** @param {Range} chosen */
const ranges = (chosen) =>
  h(
    "div",
    { class: "choice", role: "group", "aria-label": "Time range" },
    /** @type {Range[]} */ (["hour", "day"]).map((range) =>
      h(
        "a",
        {
          class: "button slim",
          href: pageUrl("", range === "hour" ? {} : { range }),
          "aria-current": range === chosen ? "true" : undefined,
        },
        RANGES[range].name,
      ),
    ),
  );

const skeleton = () => [
  h("div", { class: "skeleton alerts-placeholder" }),
  h("div", { class: "skeleton tiles-placeholder" }),
  h("div", { class: "skeleton plot-placeholder" }),
];
