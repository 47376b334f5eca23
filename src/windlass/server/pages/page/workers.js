/** The workers that live: what they take, how full they are, which do not hear. */

/** @import { Page } from "../page.js" */
/** @import { Column } from "../view/parts.js" */
/** @import { Worker } from "../client/windlass.js" */

import { plural } from "../format.js";
import { live } from "../live/tab.js";
import { h } from "../view/dom.js";
import { badge, empty, link, table, title, trouble, when } from "../view/parts.js";

const PERIOD = 2; // seconds

/** @type {Page} */
export function workersPage(view) {
  /** @type {Worker[] | null} */
  let workers = null;
  /** @type {unknown} */
  let error = null;
  view.title("Workers");
  view.onClose(
    live.poll("/api/workers", PERIOD, (answer, wrong) => {
      workers = answer?.workers ?? workers;
      error = wrong;
      view.changed();
    }),
  );
  return () => [
    title("Workers", workers !== null && workers.length > 0 && summary(workers)),
    error !== null && trouble(error, () => live.refresh("/api/workers")),
    workers === null
      ? error === null && h("div", { class: "skeleton" })
      : workers.length > 0
        ? table("Workers", COLUMNS, workers, (one) => one.name)
        : empty(
            "No worker is alive",
            "Jobs wait until one runs: windlass worker module:app",
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
  { name: "State", cell: (one) => h("span", null, standing(one)) },
  { name: "Busy", class: "nowrap", cell: (one) => `${one.running} of ${one.running + one.free}` },
  {
    name: "Queues",
    cell: (one) =>
      h(
        "span",
        null,
        Object.entries(one.queues).map(([queue, most]) => [
          link("jobs", `${queue} (${most})`, { queue }),
          " ",
        ]),
      ),
  },
  {
    name: "Tasks",
    class: "soft small",
    cell: (one) => h("span", { title: one.tasks.join("\n") }, plural(one.tasks.length, "task")),
  },
  { name: "Last claim", cell: (one) => when(one.lastClaimAt) },
  { name: "Started", cell: (one) => when(one.startedAt) },
];

/** @param {Worker} one */
function standing(one) {
  if (one.deaf) {
    return h(
      "span",
      { title: "It lives and has room, but no claim of it was answered for a while." },
      badge("failed", "deaf"),
    );
  }
  if (one.stopping) return badge("retrying", "stopping");
  return badge("succeeded", "alive");
}
