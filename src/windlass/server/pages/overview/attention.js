/** What somebody should look at, the worst first: what is stuck, why, since when, what to do. */

/** @import { Given } from "../view/dom.js" */
/** @import { Queue, State, Worker } from "../client/windlass.js" */

import { ago, plural, span } from "../format.js";
import { to } from "../router.js";
import { may } from "../session.js";
import { h } from "../view/dom.js";
import { icon } from "../view/icons.js";
import { button } from "../view/parts.js";
import { waiting } from "./numbers.js";

const LATE = 300; // seconds in line, after which a job waits too long
const MANY = 5; // attempts a minute…
const OFTEN = 0.2; // … of which so many ended badly

/**
 * @typedef {object} Concern
 * @property {string} key
 * @property {State} state whose colour it has
 * @property {string} what
 * @property {string} todo
 * @property {string} [path] where to look
 * @property {Record<string, any>} [query]
 * @property {string} [queue] which can be resumed
 */

/**
 * @param {Queue[]} queues
 * @param {Worker[]} workers
 * @returns {Concern[]}
 */
export function concerns(queues, workers) {
  const deaf = workers.filter((one) => one.deaf).map(ofDeaf);
  const found = queues.flatMap((queue) => ofQueue(queue, workers));
  const all = queues.reduce((sum, one) => sum + waiting(one), 0);
  if (workers.length > 0 || all === 0) return [...deaf, ...found];
  /** @type {Concern} */
  const nobody = {
    key: "nobody",
    state: "failed",
    what: `No worker is alive, and ${plural(all, "job")} ${all === 1 ? "waits" : "wait"}.`,
    todo: "Start one: windlass worker module:app",
    path: "workers",
  };
  return [nobody, ...found.filter((one) => !one.key.startsWith("untaken"))];
}

/** @param {Worker} one @returns {Concern} */
const ofDeaf = (one) => ({
  key: `deaf ${one.name}`,
  state: "failed",
  what: `The worker ${one.name} is deaf: it lives and has room, but its last claim was ${
    one.lastClaimAt ? ago(one.lastClaimAt) : "never"
  }.`,
  todo: `Look at its log on ${one.host}, process ${one.pid}, and start it again.`,
  path: "workers",
});

/** @param {Queue} queue @param {Worker[]} workers @returns {Concern[]} */
function ofQueue(queue, workers) {
  const count = waiting(queue);
  const jobs = plural(count, "job");
  const look = { path: "jobs", query: { queue: queue.name, state: "queued" } };
  /** @type {Concern[]} */
  const found = [];
  if (queue.paused && count > 0) {
    found.push({
      key: `paused ${queue.name}`,
      state: "retrying",
      queue: queue.name,
      ...look,
      what: `${queue.name} is paused, and ${jobs} ${count === 1 ? "waits" : "wait"} in it.`,
      todo: `windlass queues resume ${queue.name}`,
    });
  } else if (count > 0 && !workers.some((one) => queue.name in one.queues && !one.stopping)) {
    found.push({
      key: `untaken ${queue.name}`,
      state: "failed",
      ...look,
      what: `No worker takes the queue ${queue.name}, and ${jobs} ${count === 1 ? "waits" : "wait"} in it.`,
      todo: `Start one that does: windlass worker module:app -Q ${queue.name}=4`,
    });
  } else if ((queue.oldestAge ?? 0) > LATE) {
    found.push({
      key: `late ${queue.name}`,
      state: "retrying",
      ...look,
      what: `The oldest of ${jobs} in ${queue.name} has waited for ${span(queue.oldestAge ?? 0)}.`,
      todo: "More is put in than is done: give the queue more slots, or more workers.",
    });
  }
  return [...found, ...ofFailures(queue)];
}

/** @param {Queue} queue @returns {Concern[]} */
function ofFailures({ name, perMinute: { minutes, started, failed, retried } }) {
  const bad = failed + retried;
  const ended = Math.max(started, bad);
  if (ended < MANY || bad / ended < OFTEN) return [];
  return [
    {
      key: `failing ${name}`,
      state: "failed",
      path: "failures",
      what: `${Math.round((bad / ended) * 100)} % of the attempts of ${name} went wrong in the last ${plural(
        Math.round(minutes),
        "minute",
      )}.`,
      todo: "See what they have in common.",
    },
  ];
}

/**
 * @param {Concern[]} found
 * @param {(queue: string) => unknown} resume
 * @returns {Given}
 */
export function attention(found, resume) {
  if (found.length === 0) {
    return h(
      "div",
      { class: "attention well card" },
      h("span", { class: "state-succeeded tick" }, icon("check")),
      h("p", null, "Nothing needs you: all queues move, all workers hear."),
    );
  }
  return h(
    "section",
    { class: "attention card", "aria-label": "What needs attention" },
    h(
      "ul",
      null,
      found.map((one) => h("li", { key: one.key, class: `state-${one.state}` }, told(one, resume))),
    ),
  );
}

/** @param {Concern} one @param {(queue: string) => unknown} resume */
const told = (one, resume) => [
  h("span", { class: "dot" }),
  h("div", null, h("p", null, one.what), h("p", { class: "soft small" }, one.todo)),
  one.queue !== undefined &&
    may("operate") &&
    button("Resume", () => resume(/** @type {string} */ (one.queue)), {
      icon: "resume",
      slim: true,
    }),
  one.path !== undefined && h("a", { class: "button slim", href: to(one.path, one.query) }, "Look"),
];
