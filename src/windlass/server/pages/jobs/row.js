/** One row of the job list. */

/** @import { Renderable } from "../view/virtual-dom.js" */
/** @import { Row } from "./job-list.js" */

import { ago, shortId, dateTime, timeText, secondsSince, duration } from "../format.js";
import { pageUrl } from "../navigation.js";
import { h } from "../view/virtual-dom.js";
import { badge, bar } from "../view/components.js";
import { ended } from "../job-state.js";

/**
 * @typedef {object} RowOptions
 * @property {boolean} matches whether it still matches the filters
 * @property {boolean} current whether it has the keyboard focus
 * @property {boolean | null} selected null: not selectable
 * @property {(event: MouseEvent) => void} select
 * @property {() => void} focus
 */

/** Return the element id of a row's link. @param {string} id */
export const rowLink = (id) => `job-${id}`;

/** @param {Row} row @param {RowOptions} options */
export function jobRow(row, options) {
  const { matches, current, selected, focus } = options;
  const tabindex = current ? 0 : -1;
  return h(
    "tr",
    {
      key: row.id,
      class: `job ${matches ? "" : "left"} ${selected ? "selected" : ""}`,
      title: row.gone ? "Deleted" : matches ? undefined : "No longer matches the filters",
      onfocusin: focus,
    },
    selected !== null && h("td", { class: "of-check" }, checkbox(row, options, tabindex)),
    h("td", { class: "of-state" }, row.gone ? badge("canceled", "deleted") : stateOf(row)),
    h("td", { class: "of-task" }, taskOf(row, tabindex)),
    h("td", { class: "of-queue cut" }, filterLink("queue", row.queue, tabindex)),
    h("td", { class: "of-progress" }, progressOf(row)),
    h("td", { class: "of-tags" }, tagsOf(row, tabindex)),
    h(
      "td",
      { class: "of-owner" },
      h("div", { class: "cut" }, row.owner && filterLink("owner", row.owner, tabindex)),
      h("div", { class: "cut small soft" }, row.team && filterLink("team", row.team, tabindex)),
    ),
    h("td", { class: "of-attempts number", title: attemptsTitle(row) }, row.attempt || "–"),
    h("td", { class: "of-time" }, timeOf(row)),
  );
}

/** @param {Row} row @param {RowOptions} options @param {number} tabindex */
const checkbox = (row, { selected, select }, tabindex) =>
  h("input", {
    type: "checkbox",
    class: "check",
    tabindex,
    checked: selected === true,
    "aria-label": `Select ${row.task} ${shortId(row.id)}`,
    onclick: select,
  });

/** @param {Row} row */
const stateOf = (row) =>
  row.cancelRequested && !ended(row.state) ? badge("canceled", "canceling") : badge(row.state);

/** @param {Row} row @param {number} tabindex */
const taskOf = (row, tabindex) =>
  h(
    "a",
    {
      id: rowLink(row.id),
      class: "open",
      href: pageUrl(`jobs/${encodeURIComponent(row.id)}`),
      tabindex,
    },
    h("span", { class: "cut", title: row.task }, row.task),
    h("span", { class: "cut mono soft", title: row.id }, shortId(row.id)),
  );

/**
 * Link to the jobs with the same value.
 *
 * @param {string} name
 * @param {string} value
 * @param {number} tabindex
 */
const filterLink = (name, value, tabindex) =>
  h("a", { href: pageUrl("jobs", { [name]: value }), title: `${name} ${value}`, tabindex }, value);

/** @param {Row} row @param {number} tabindex */
const tagsOf = ({ tags }, tabindex) =>
  h(
    "div",
    { class: "tags", title: tags.join("\n") },
    tags.map((tag) =>
      h("a", { class: "tag cut", href: pageUrl("jobs", { tag }), tabindex, key: tag }, tag),
    ),
  );

/** @param {Row} row */
const attemptsTitle = ({ attempt, retryCount, crashCount }) =>
  attempt === 0
    ? "not started yet"
    : `attempt ${attempt}; retries ${retryCount}, crashes ${crashCount}`;

/** Render progress, the wait reason, or the error. @param {Row} row */
function progressOf(row) {
  if (row.state === "running") return running(row);
  const [text, note] = statusText(row);
  return [
    h(
      "div",
      { class: `cut ${row.errorCode ? "mono wrong" : "soft"}`, title: text || undefined },
      text,
    ),
    h("div", { class: "cut small soft" }, note),
  ];
}

/** @param {Row} row */
function running({ percent, phase, stage, state }) {
  const activity = [...new Set([phase, stage])].filter((name) => name !== null).join(" · ");
  return [
    bar(percent, state),
    h(
      "div",
      { class: "cut small soft", title: activity || undefined },
      `${percent} %`,
      activity && ` · ${activity}`,
    ),
  ];
}

/** @param {Row} row @returns {[string, Renderable]} */
function statusText(row) {
  const { state, errorCode, dueAt, percent } = row;
  if (state === "retrying") return [errorCode ?? "", dueAt ? `retry ${ago(dueAt)}` : ""];
  if (state === "failed" || state === "canceled") {
    return [
      errorCode ?? "",
      [row.retriedAs !== null ? "retried" : percent > 0 && `at ${percent} %`],
    ];
  }
  if (state === "succeeded") return ["", ""];
  if (row.held) return ["held until submitted", ""];
  if (row.waitingFor > 0)
    return [`waiting for ${row.waitingFor} job${row.waitingFor > 1 ? "s" : ""}`, ""];
  if (row.gate !== null) return [`waiting for limit ${row.gate}`, row.limitKey ?? ""];
  if (dueAt && new Date(dueAt).getTime() > Date.now()) return [`scheduled for ${timeText(dueAt)}`, ago(dueAt)];
  return ["", ""];
}

/** Render the creation time, and the run or wait time. @param {Row} row */
function timeOf(row) {
  const { createdAt, startedAt, firstStartedAt, endedAt, queuedAt, state } = row;
  const from = state === "running" ? startedAt : endedAt ? firstStartedAt : null;
  const waiting =
    state === "queued" && queuedAt ? `waiting ${wholeSeconds(secondsSince(queuedAt))}` : "";
  const length = from ? secondsSince(from, endedAt ?? undefined) : null;
  return [
    h("time", { datetime: createdAt, title: `created ${dateTime(createdAt)}` }, ago(createdAt)),
    h(
      "div",
      { class: "small soft" },
      length === null
        ? waiting
        : endedAt
          ? `took ${duration(length)}`
          : `for ${wholeSeconds(length)}`,
    ),
  ];
}

/** Format a running duration in whole seconds. @param {number} seconds */
const wholeSeconds = (seconds) => (seconds < 10 ? `${Math.floor(seconds)} s` : duration(seconds));
