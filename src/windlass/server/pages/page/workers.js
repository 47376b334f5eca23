/** Table of workers: queues, busy slots, health. */

/** @import { Page } from "../page-view.js" */
/** @import { Column } from "../view/components.js" */
/** @import { Worker } from "../client/windlass.js" */

import { plural } from "../format.js";
import { live } from "../live/live.js";
import { h } from "../view/virtual-dom.js";
import { badge, empty, errorNote, link, table, title, when } from "../view/components.js";

const PERIOD = 2; // seconds

/** @type {Page} */
export function workersPage(view) {
  /** @type {Worker[] | null} */
  let workers = null;
  /** @type {unknown} */
  let error = null;
  view.title("Workers");
  view.onClose(
    live.poll("/api/workers", PERIOD, (answer, problem) => {
      workers = answer?.workers ?? workers;
      error = problem;
      view.changed();
    }),
  );
  return () => [
    title("Workers", workers !== null && workers.length > 0 && summary(workers)),
    error !== null && errorNote(error, () => live.refresh("/api/workers")),
    workers === null
      ? error === null && h("div", { class: "skeleton" })
      : workers.length > 0
        ? table("Workers", COLUMNS, workers, (worker) => worker.name)
        : empty(
            "No workers running",
            "Queued jobs wait for a worker: windlass worker module:app",
            null,
            "workers",
          ),
  ];
}

/** @param {Worker[]} workers */
function summary(workers) {
  const running = workers.reduce((sum, worker) => sum + worker.running, 0);
  const slots = workers.reduce((sum, worker) => sum + worker.running + worker.free, 0);
  return h("span", { class: "soft small" }, `${running} of ${plural(slots, "slot")} busy`);
}

/** @type {Column<Worker>[]} */
const COLUMNS = [
  {
    name: "Worker",
    cell: (worker) =>
      h(
        "div",
        null,
        link("jobs", worker.name, { worker: worker.name, state: "running" }),
        h("div", { class: "soft small" }, `${worker.host} · pid ${worker.pid} · ${worker.version}`),
      ),
  },
  { name: "State", cell: (worker) => h("span", null, stateBadge(worker)) },
  {
    name: "Busy slots",
    class: "nowrap",
    cell: (worker) => `${worker.running} of ${worker.running + worker.free}`,
  },
  {
    name: "Queues",
    cell: (worker) =>
      h(
        "span",
        null,
        Object.entries(worker.queues).map(([queue, slots]) => [
          link("jobs", `${queue}\u00a0(${slots})`, { queue }),
          " ",
        ]),
      ),
  },
  {
    name: "Tasks",
    class: "soft small",
    cell: (worker) =>
      h("span", { title: worker.tasks.join("\n") }, plural(worker.tasks.length, "task")),
  },
  {
    name: "Last claim",
    cell: (worker) => (worker.lastClaimAt ? when(worker.lastClaimAt) : "no jobs claimed yet"),
  },
  { name: "Started", cell: (worker) => when(worker.startedAt) },
];

/** @param {Worker} worker */
function stateBadge(worker) {
  if (worker.unresponsive) {
    return h(
      "span",
      { title: "It has free slots, but has not claimed jobs for a while." },
      badge("failed", "unresponsive"),
    );
  }
  if (worker.stopping) return badge("retrying", "stopping");
  return badge("succeeded", "healthy");
}
