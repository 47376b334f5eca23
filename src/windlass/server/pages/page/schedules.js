/** What makes jobs by the clock: when next, and a way to stop it, or not to wait for it. */

/** @import { Page } from "../page.js" */
/** @import { Column } from "../view/parts.js" */
/** @import { Schedule } from "../client/windlass.js" */

import { moment, span } from "../format.js";
import { live } from "../live/tab.js";
import { to } from "../router.js";
import { api, may } from "../session.js";
import { confirm } from "../view/dialog.js";
import { h } from "../view/dom.js";
import { badge, button, empty, jobLink, table, title, trouble, when } from "../view/parts.js";
import { toast } from "../view/toast.js";

const PERIOD = 5; // seconds
const PATH = "/api/schedules";
const MISSED = {
  skip: "missed runs are left out",
  last: "of missed runs the last is made up for",
  all: "missed runs are made up for",
};

/** @type {Page} */
export function schedulesPage(view) {
  /** @type {Schedule[] | null} */
  let found = null;
  /** @type {unknown} */
  let error = null;
  view.title("Schedules");
  view.onClose(
    live.poll(PATH, PERIOD, (answer, wrong) => {
      found = answer?.schedules ?? found;
      error = wrong;
      view.changed();
    }),
  );
  return () => [
    title("Schedules"),
    error !== null && trouble(error, () => live.refresh(PATH)),
    found === null
      ? error === null && h("div", { class: "skeleton" })
      : found.length > 0
        ? table(
            "Schedules",
            may("operate") ? [...COLUMNS, ACTIONS] : COLUMNS,
            found,
            (one) => one.name,
          )
        : empty(
            "There are no schedules",
            'Write one beside a task, @app.schedule("*/5 * * * *"), or: windlass schedules add',
            null,
            "schedules",
          ),
  ];
}

/** @type {Column<Schedule>[]} */
const COLUMNS = [
  {
    name: "Schedule",
    cell: (one) =>
      h(
        "div",
        null,
        h("strong", null, one.name),
        " ",
        one.paused && badge("retrying", "paused"),
        h(
          "div",
          { class: "small soft" },
          h("a", { href: to("jobs", { task: one.task }) }, one.task),
        ),
      ),
  },
  {
    name: "When",
    cell: (one) =>
      h(
        "div",
        null,
        h("code", null, one.cron ?? `every ${span(one.every ?? 0)}`),
        h("div", { class: "small soft" }, one.cron && `${one.tz}; `, MISSED[one.missed]),
      ),
  },
  { name: "Next", cell: next },
  {
    name: "Last",
    cell: (one) => {
      const job = /** @type {any} */ (one).lastJobId;
      return h("span", null, when(one.lastTick), job && [" ", jobLink(job)]);
    },
  },
];

/** @param {Schedule} one */
function next(one) {
  if (one.paused) return h("span", { class: "faint" }, "not while it is paused");
  const ticks = /** @type {string[]} */ (/** @type {any} */ (one).nextTicks ?? []);
  return h(
    "span",
    { title: ticks.map(moment).join("\n") || undefined },
    when(one.nextTick),
    ticks.length > 1 &&
      h(
        "ul",
        { class: "small soft" },
        ticks.slice(1, 3).map((tick) => h("li", { key: tick }, when(tick))),
      ),
  );
}

/** @type {Column<Schedule>} */
const ACTIONS = {
  name: "Do",
  cell: (one) =>
    h(
      "span",
      { class: "doing" },
      button("Run now", () => runNow(one), {
        slim: true,
        icon: "resume",
        label: `Run ${one.name} now`,
      }),
      one.paused
        ? button("Resume", () => done(() => api.resumeSchedule(one.name), `${one.name} goes on.`), {
            slim: true,
            kind: "plain",
            label: `Resume ${one.name}`,
          })
        : button("Pause", () => pause(one), {
            slim: true,
            kind: "plain",
            icon: "pause",
            label: `Pause ${one.name}`,
          }),
      !one.declared &&
        button("Delete", () => remove(one), {
          slim: true,
          kind: "plain",
          icon: "delete",
          label: `Delete ${one.name}`,
        }),
    ),
};

/** Those that are being run: whoever clicks twice means it once. @type {Set<string>} */
const starting = new Set();

/** @param {Schedule} one */
async function runNow({ name }) {
  if (starting.has(name)) return;
  starting.add(name);
  try {
    const job = await api.runSchedule(name);
    toast([`${name} runs: `, jobLink(job.id)]);
  } catch (error) {
    toast(/** @type {Error} */ (error).message, "failed");
  }
  starting.delete(name);
}

/** @param {Schedule} one */
async function pause(one) {
  const agreed = await confirm({
    title: `Pause ${one.name}?`,
    text: "It makes no jobs until it is resumed, and the ticks of the pause do not come back.",
    action: "Pause",
  });
  if (agreed) await done(() => api.pauseSchedule(one.name), `${one.name} is paused.`);
}

/** @param {Schedule} one */
async function remove(one) {
  const agreed = await confirm({
    title: `Delete ${one.name}?`,
    text: "The jobs that it made stay.",
    action: "Delete",
    danger: true,
  });
  if (agreed) await done(() => api.deleteSchedule(one.name), `${one.name} is deleted.`);
}

/** @param {() => Promise<unknown>} call @param {string} said */
async function done(call, said) {
  try {
    await call();
    toast(said);
  } catch (error) {
    toast(/** @type {Error} */ (error).message, "failed");
  }
  live.refresh(PATH);
}
