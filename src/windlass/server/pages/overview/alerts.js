/** Alerts of the overview, most severe first, with what to do. */

/** @import { Renderable } from "../view/virtual-dom.js" */
/** @import { Queue, State, Worker } from "../client/windlass.js" */

import { ago, number, plural, duration } from "../format.js";
import { pageUrl } from "../navigation.js";
import { may } from "../session.js";
import { h } from "../view/virtual-dom.js";
import { icon } from "../view/icons.js";
import { button } from "../view/components.js";
import { isCapped, queuedCount } from "./queue-counts.js";

const MAX_WAIT = 300; // seconds in the queue
const MIN_ATTEMPTS = 5; // per minute
const MAX_ERROR_RATE = 0.2;

/**
 * @typedef {object} Alert
 * @property {string} key
 * @property {State} state sets the color
 * @property {string} problem
 * @property {string} action
 * @property {string} [path] of the page with details
 * @property {Record<string, any>} [query]
 * @property {string} [queue] that can be resumed
 */

/**
 * @param {Queue[]} queues
 * @param {Worker[]} workers
 * @returns {Alert[]}
 */
export function findAlerts(queues, workers) {
  const unresponsive = workers.filter((worker) => worker.unresponsive).map(workerAlert);
  const found = queues.flatMap((queue) => queueAlerts(queue, workers));
  const all = queues.reduce((sum, queue) => sum + queuedCount(queue), 0);
  if (workers.length > 0 || all === 0) return [...unresponsive, ...found];
  /** @type {Alert} */
  const noWorkers = {
    key: "no-workers",
    state: "failed",
    problem: `No workers running; ${number(all)}${isCapped(queues, "queued") ? "+" : ""} ${
      all === 1 ? "job" : "jobs"
    } queued.`,
    action: "Start one: windlass worker module:app",
    path: "workers",
  };
  return [noWorkers, ...found.filter((alert) => !alert.key.startsWith("unconsumed"))];
}

/** @param {Worker} worker @returns {Alert} */
const workerAlert = (worker) => ({
  key: `unresponsive ${worker.name}`,
  state: "failed",
  problem: `Worker ${worker.name} is unresponsive: it has free slots, but ${
    worker.lastClaimAt
      ? `its last claim was ${ago(worker.lastClaimAt)}`
      : "it has claimed no jobs yet"
  }.`,
  action: `Check its log on ${worker.host} (pid ${worker.pid}) and restart it.`,
  path: "workers",
});

/** @param {Queue} queue @param {Worker[]} workers @returns {Alert[]} */
function queueAlerts(queue, workers) {
  const count = queuedCount(queue);
  const age = queue.oldestAge ?? 0;
  const jobs = plural(count, "job");
  const details = { path: "jobs", query: { queue: queue.name, state: "queued" } };
  /** @type {Alert[]} */
  const found = [];
  if (queue.paused && count > 0) {
    found.push({
      key: `paused ${queue.name}`,
      state: "retrying",
      queue: queue.name,
      ...details,
      problem: `Queue ${queue.name} is paused (${jobs} waiting).`,
      action: `Resume it: windlass queues resume ${queue.name}`,
    });
  } else if (
    count > 0 &&
    !workers.some((worker) => queue.name in worker.queues && !worker.stopping)
  ) {
    found.push({
      key: `unconsumed ${queue.name}`,
      state: "failed",
      ...details,
      problem: `No worker consumes queue ${queue.name} (${jobs} waiting).`,
      action: `Start one: windlass worker module:app -Q ${queue.name}=4`,
    });
  } else if (age > MAX_WAIT) {
    found.push({
      key: `late ${queue.name}`,
      state: "retrying",
      ...details,
      problem: `Queue ${queue.name}: the oldest of ${jobs} has waited ${duration(age)}.`,
      action: "Jobs arrive faster than they complete: add slots or workers.",
    });
  }
  return [...found, ...failureAlerts(queue)];
}

/** @param {Queue} queue @returns {Alert[]} */
function failureAlerts({ name, perMinute: { minutes, started, failed, retried } }) {
  const bad = failed + retried;
  const ended = Math.max(started, bad);
  if (ended < MIN_ATTEMPTS || bad / ended < MAX_ERROR_RATE) return [];
  const percent = Math.round((bad / ended) * 100);
  return [
    {
      key: `failing ${name}`,
      state: "failed",
      path: "failures",
      problem: `${name}: ${percent} % errors in the last ${Math.round(minutes)} min.`,
      action: "View failures.",
    },
  ];
}

/**
 * @param {Alert[]} alerts
 * @param {(queue: string) => unknown} resume
 * @returns {Renderable}
 */
export function alertList(alerts, resume) {
  if (alerts.length === 0) {
    return h(
      "div",
      { class: "alerts healthy card" },
      h("span", { class: "state-succeeded tick" }, icon("check")),
      h("p", null, "All systems healthy: queues are moving, workers are responding."),
    );
  }
  return h(
    "section",
    { class: "alerts card", "aria-label": "Alerts" },
    h(
      "ul",
      null,
      alerts.map((alert) =>
        h("li", { key: alert.key, class: `state-${alert.state}` }, alertRow(alert, resume)),
      ),
    ),
  );
}

/** @param {Alert} alert @param {(queue: string) => unknown} resume */
const alertRow = (alert, resume) => [
  h("span", { class: "dot" }),
  h("div", null, h("p", null, alert.problem), h("p", { class: "soft small" }, alert.action)),
  alert.queue !== undefined &&
    may("operate") &&
    button("Resume", () => resume(/** @type {string} */ (alert.queue)), {
      icon: "resume",
      slim: true,
    }),
  alert.path !== undefined &&
    h("a", { class: "button slim", href: pageUrl(alert.path, alert.query) }, "View"),
];
