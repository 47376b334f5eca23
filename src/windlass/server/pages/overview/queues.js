/** The queues: how deep, how old, how fast, how well; and a way to pause each. */

/** @import { Column } from "../view/parts.js" */
/** @import { Queue, State } from "../client/windlass.js" */

import { short, span } from "../format.js";
import { to } from "../router.js";
import { api, may } from "../session.js";
import { live } from "../live/tab.js";
import { confirm } from "../view/dialog.js";
import { h } from "../view/dom.js";
import { badge, button, card, empty, table } from "../view/parts.js";
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
        h("a", { href: to("jobs", { queue: queue.name }) }, queue.name),
        " ",
        queue.paused && badge("retrying", "paused"),
      ),
  },
  depth("queued", "Waiting"),
  depth("running", "Running"),
  depth("retrying", "Backing off"),
  depth("created", "Later"),
  {
    name: "Oldest",
    number: true,
    cell: (queue) => (queue.oldestAge === null ? "–" : span(queue.oldestAge)),
  },
  { name: "Done a minute", number: true, cell: (queue) => rate(queue.perMinute.succeeded) },
  { name: "Went wrong", number: true, cell: (queue) => wrong(queue) },
  { name: "In line", number: true, cell: (queue) => mean(queue.perMinute.meanWait) },
  { name: "At work", number: true, cell: (queue) => mean(queue.perMinute.meanRun) },
];

/** @param {Queue[]} queues */
export function queueTable(queues) {
  if (queues.length === 0) {
    const action =
      may("produce") && h("a", { class: "button main", href: to("enqueue") }, "Enqueue a job");
    return card(
      "Queues",
      empty("No queue has work", "Queues appear with their first job.", action),
      {
        padded: false,
      },
    );
  }
  const columns = may("operate") ? [...COLUMNS, { name: "Pause", cell: switchOf }] : COLUMNS;
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
  const text = short(found) + (queue.capped.includes(state) ? "+" : "");
  if (found === 0) return h("span", { class: "faint" }, "0");
  return h("a", { href: to("jobs", { queue: queue.name, state }) }, text);
}

/** @param {number} value */
const rate = (value) => (value > 0 && value < 9.5 ? value.toFixed(1) : short(Math.round(value)));

/** @param {number | null} seconds */
const mean = (seconds) => (seconds === null ? "–" : span(seconds));

/** @param {Queue} queue */
function wrong({ perMinute: { succeeded, failed, retried, canceled } }) {
  const bad = failed + retried;
  const all = bad + succeeded + canceled;
  if (all === 0) return "–";
  const part = (bad / all) * 100;
  const text = part > 0 && part < 1 ? "< 1 %" : `${Math.round(part)} %`;
  return h("span", { class: part >= 20 ? "bad" : part > 0 ? "" : "faint" }, text);
}

/** @param {Queue} queue */
const switchOf = (queue) =>
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
  const agreed = await confirm({
    title: `Pause ${name}?`,
    text: "No worker is given a job of it until it is resumed. What runs is left alone.",
    action: "Pause",
  });
  if (agreed) await done(() => api.pauseQueue(name), `${name} is paused.`);
}

/** @param {string} name */
export const resume = (name) => done(() => api.resumeQueue(name), `${name} goes on.`);

/** @param {() => Promise<unknown>} call @param {string} said */
async function done(call, said) {
  try {
    await call();
    toast(said);
  } catch (error) {
    toast(/** @type {Error} */ (error).message, "failed");
  }
  live.refresh("/api/queues");
}
