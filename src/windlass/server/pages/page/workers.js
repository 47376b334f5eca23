/** Table of workers: queues, busy slots, health. */

/** @import { Page } from "../page-view.js" */
/** @import { Column } from "../view/components.js" */
/** @import { Worker } from "../client/windlass.js" */

import { plural } from "../format.js";
import { live } from "../live/tab-client.js";
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
        ? table("Workers", COLUMNS, workers, (one) => one.name)
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
  const running = workers.reduce((sum, one) => sum + one.running, 0);
  const slots = workers.reduce((sum, one) => sum + one.running + one.free, 0);
  return h("span", { class: "soft small" }, `${running} of ${plural(slots, "slot")} busy`);
}

/** @type {Column<Worker>[]} */
const COLUMNS = [
  {
    name: "Worker",
    cell: (one) =>
      h(
        "div",
        null,
        link("jobs", one.name, { worker: one.name, state: "running" }),
        h("div", { class: "soft small" }, `${one.host} · pid ${one.pid} · ${one.version}`),
      ),
  },
  { name: "State", cell: (one) => h("span", null, stateBadge(one)) },
  { name: "Busy", class: "nowrap", cell: (one) => `${one.running} of ${one.running + one.free}` },
  {
    name: "Queues",
    cell: (one) =>
      h(
        "span",
        null,
        Object.entries(one.queues).map(([queue, slots]) => [
          link("jobs", `${queue} (${slots})`, { queue }),
          " ",
        ]),
      ),
  },
  {
    name: "Tasks",
    class: "soft small",
    cell: (one) => h("span", { title: one.tasks.join("\n") }, plural(one.tasks.length, "task")),
  },
  {
    name: "Last claim",
    cell: (one) => (one.lastClaimAt ? when(one.lastClaimAt) : "no jobs claimed yet"),
  },
  { name: "Started", cell: (one) => when(one.startedAt) },
];

/** @param {Worker} one */
function stateBadge(one) {
  if (one.unresponsive) {
    return h(
      "span",
      { title: "It has free slots, but no claim has been answered for a while." },
      badge("failed", "unresponsive"),
    );
  }
  if (one.stopping) return badge("retrying", "stopping");
  return badge("succeeded", "healthy");
}
