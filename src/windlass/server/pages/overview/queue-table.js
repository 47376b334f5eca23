/** Table of queues with counts, rates and a pause button. */

/** @import { Column } from "../view/components.js" */
/** @import { Queue, State } from "../client/windlass.js" */

import { api } from "../api.js";
import { compactNumber, duration } from "../format.js";
import { pageUrl } from "../navigation.js";
import { may } from "../session.js";
import { live } from "../live/live.js";
import { confirm } from "../view/dialog.js";
import { h } from "../view/virtual-dom.js";
import { badge, button, card, empty, table } from "../view/components.js";
import { toast } from "../view/toast.js";

/** @param {State} state @param {string} name @returns {Column<Queue>} */
const depth = (state, name) => ({ name, number: true, cell: (queue) => count(queue, state) });

/** @type {Column<Queue>[]} */
const COLUMNS = [
  {
    name: "Queue",
    cell: (queue) =>
      h(
        "span",
        null,
        h("a", { href: pageUrl("jobs", { queue: queue.name }) }, queue.name),
        " ",
        queue.paused && badge("retrying", "paused"),
      ),
  },
  depth("queued", "Queued"),
  depth("running", "Running"),
  depth("retrying", "Retrying"),
  depth("created", "Scheduled"),
  {
    name: "Oldest",
    number: true,
    cell: (queue) => (queue.oldestAge === null ? "–" : duration(queue.oldestAge)),
  },
  { name: "Completed/min", number: true, cell: (queue) => rate(queue.perMinute.succeeded) },
  { name: "Error rate", number: true, cell: (queue) => errorRate(queue) },
  { name: "Queue wait", number: true, cell: (queue) => mean(queue.perMinute.meanWait) },
  { name: "Run time", number: true, cell: (queue) => mean(queue.perMinute.meanRun) },
];

/** @param {Queue[]} queues */
export function queueTable(queues) {
  if (queues.length === 0) {
    const action =
      may("produce") && h("a", { class: "button main", href: pageUrl("enqueue") }, "Enqueue a job");
    return card("Queues", empty("No queues yet", "A queue appears with its first job.", action), {
      padded: false,
    });
  }
  const columns = may("operate") ? [...COLUMNS, { name: "Actions", cell: pauseButton }] : COLUMNS;
  return h(
    "section",
    { class: "queues" },
    h("h2", null, "Queues"),
    table("Queues", columns, queues, (queue) => queue.name),
  );
}

/** @param {Queue} queue @param {State} state */
function count(queue, state) {
  const found = queue.counts[state] ?? 0;
  const text = compactNumber(found) + (queue.capped.includes(state) ? "+" : "");
  if (found === 0) return h("span", { class: "faint" }, "0");
  return h("a", { href: pageUrl("jobs", { queue: queue.name, state }) }, text);
}

/** @param {number} value */
const rate = (value) =>
  value > 0 && value < 9.5 ? value.toFixed(1) : compactNumber(Math.round(value));

/** @param {number | null} seconds */
const mean = (seconds) => (seconds === null ? "–" : duration(seconds));

/** @param {Queue} queue */
function errorRate({ perMinute: { succeeded, failed, retried, canceled } }) {
  const bad = failed + retried;
  const all = bad + succeeded + canceled;
  if (all === 0) return "–";
  const part = (bad / all) * 100;
  const text = part > 0 && part < 1 ? "< 1 %" : `${Math.round(part)} %`;
  return h("span", { class: part >= 20 ? "bad" : part > 0 ? "" : "faint" }, text);
}

/** @param {Queue} queue */
const pauseButton = (queue) =>
  queue.paused
    ? button("Resume", () => resume(queue.name), {
        icon: "resume",
        slim: true,
        label: `Resume ${queue.name}`,
      })
    : button("Pause", () => pause(queue.name), {
        icon: "pause",
        slim: true,
        kind: "plain",
        label: `Pause ${queue.name}`,
      });

/** @param {string} name */
async function pause(name) {
  const confirmed = await confirm({
    title: `Pause ${name}?`,
    text: "Workers claim no jobs from it until it is resumed. Running jobs continue.",
    action: "Pause",
  });
  if (confirmed) await run(() => api.pauseQueue(name), `Paused ${name}.`);
}

/** @param {string} name */
export const resume = (name) => run(() => api.resumeQueue(name), `Resumed ${name}.`);

/** @param {() => Promise<unknown>} call @param {string} message */
async function run(call, message) {
  try {
    await call();
    toast(message);
  } catch (error) {
    toast(/** @type {Error} */ (error).message, "failed");
  }
  live.refresh("/api/queues");
}
