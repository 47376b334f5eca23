/** Table of schedules, with next runs and actions. */

/** @import { Page } from "../page-view.js" */
/** @import { Column } from "../view/components.js" */
/** @import { Schedule } from "../client/windlass.js" */

import { api } from "../api.js";
import { dateTime, duration } from "../format.js";
import { live } from "../live/live.js";
import { pageUrl } from "../navigation.js";
import { may } from "../session.js";
import { confirm } from "../view/dialog.js";
import { h } from "../view/virtual-dom.js";
import {
  badge,
  button,
  empty,
  errorNote,
  jobLink,
  table,
  title,
  when,
} from "../view/components.js";
import { toast } from "../view/toast.js";

const PERIOD = 5; // seconds
const PATH = "/api/schedules";
const MISSED = {
  skip: "catch-up: none",
  last: "catch-up: latest only",
  all: "catch-up: all",
};

/** @type {Page} */
export function schedulesPage(view) {
  /** @type {Schedule[] | null} */
  let schedules = null;
  /** @type {unknown} */
  let error = null;
  view.title("Schedules");
  view.onClose(
    live.poll(PATH, PERIOD, (answer, problem) => {
      schedules = answer?.schedules ?? schedules;
      error = problem;
      view.changed();
    }),
  );
  return () => [
    title("Schedules"),
    error !== null && errorNote(error, () => live.refresh(PATH)),
    schedules === null
      ? error === null && h("div", { class: "skeleton" })
      : schedules.length > 0
        ? table(
            "Schedules",
            may("operate") ? [...COLUMNS, ACTIONS] : COLUMNS,
            schedules,
            (schedule) => schedule.name,
          )
        : empty(
            "No schedules yet",
            'Declare one with @app.schedule("*/5 * * * *"), or run: windlass schedules add',
            null,
            "schedules",
          ),
  ];
}

/** @type {Column<Schedule>[]} */
const COLUMNS = [
  {
    name: "Schedule",
    cell: (schedule) =>
      h(
        "div",
        null,
        h("strong", null, schedule.name),
        " ",
        schedule.paused && badge("retrying", "paused"),
        h(
          "div",
          { class: "small soft" },
          h("a", { href: pageUrl("jobs", { task: schedule.task }) }, schedule.task),
        ),
      ),
  },
  {
    name: "Cron or interval",
    cell: (schedule) =>
      h(
        "div",
        null,
        h("code", null, schedule.cron ?? `every ${duration(schedule.every ?? 0)}`),
        h(
          "div",
          { class: "small soft" },
          schedule.cron && `${schedule.tz}; `,
          MISSED[schedule.missed],
        ),
      ),
  },
  { name: "Next run", cell: nextRun },
  {
    name: "Last run",
    cell: (schedule) => {
      const job = /** @type {any} */ (schedule).lastJobId;
      return h("span", null, when(schedule.lastTick), job && [" ", jobLink(job)]);
    },
  },
];

/** @param {Schedule} schedule */
function nextRun(schedule) {
  if (schedule.paused) return h("span", { class: "faint" }, "paused");
  const ticks = /** @type {string[]} */ (/** @type {any} */ (schedule).nextTicks ?? []);
  return h(
    "span",
    { title: ticks.map(dateTime).join("\n") || undefined },
    when(schedule.nextTick),
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
  name: "Actions",
  cell: (schedule) =>
    h(
      "span",
      { class: "actions" },
      button("Run now", () => runNow(schedule), {
        slim: true,
        icon: "resume",
        label: `Run ${schedule.name} now`,
      }),
      schedule.paused
        ? button(
            "Resume",
            () => run(() => api.resumeSchedule(schedule.name), `Resumed ${schedule.name}.`),
            {
              slim: true,
              kind: "plain",
              label: `Resume ${schedule.name}`,
            },
          )
        : button("Pause", () => pause(schedule), {
            slim: true,
            kind: "plain",
            icon: "pause",
            label: `Pause ${schedule.name}`,
          }),
      !schedule.declared &&
        button("Delete", () => remove(schedule), {
          slim: true,
          kind: "plain",
          icon: "delete",
          label: `Delete ${schedule.name}`,
        }),
    ),
};

/** Names of schedules being run, so that a double click enqueues one job. @type {Set<string>} */
const starting = new Set();

/** @param {Schedule} schedule */
async function runNow({ name }) {
  if (starting.has(name)) return;
  starting.add(name);
  try {
    const job = await api.runSchedule(name);
    toast([`Enqueued ${name}: `, jobLink(job.id)]);
  } catch (error) {
    toast(/** @type {Error} */ (error).message, "failed");
  }
  starting.delete(name);
}

/** @param {Schedule} schedule */
async function pause(schedule) {
  const confirmed = await confirm({
    title: `Pause ${schedule.name}?`,
    text: "It creates no jobs until it is resumed. Runs missed during the pause are not caught up.",
    action: "Pause",
  });
  if (confirmed) await run(() => api.pauseSchedule(schedule.name), `Paused ${schedule.name}.`);
}

/** @param {Schedule} schedule */
async function remove(schedule) {
  const confirmed = await confirm({
    title: `Delete ${schedule.name}?`,
    text: "Jobs that it created stay.",
    action: "Delete",
    danger: true,
  });
  if (confirmed) await run(() => api.deleteSchedule(schedule.name), `Deleted ${schedule.name}.`);
}

/** @param {() => Promise<unknown>} call @param {string} message */
async function run(call, message) {
  try {
    await call();
    toast(message);
  } catch (error) {
    toast(/** @type {Error} */ (error).message, "failed");
  }
  live.refresh(PATH);
}
