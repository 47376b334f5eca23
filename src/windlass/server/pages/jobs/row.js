/** One job in the list: what its cells say. */

/** @import { Given } from "../view/dom.js" */
/** @import { Row } from "./list.js" */

import { ago, brief, moment, since, span } from "../format.js";
import { to } from "../router.js";
import { h } from "../view/dom.js";
import { badge, bar, ended } from "../view/parts.js";

/**
 * @typedef {object} RowOptions
 * @property {boolean} fits false: it is no longer what was asked for
 * @property {boolean} current whether the keyboard is here
 * @property {boolean | null} selected null: nothing can be done to it by this person
 * @property {(event: MouseEvent) => void} select
 * @property {() => void} focus
 */

/** The id of the link by which a row has the focus. @param {string} id */
export const rowLink = (id) => `job-${id}`;

/** @param {Row} row @param {RowOptions} options */
export function jobRow(row, options) {
  const { fits, current, selected, focus } = options;
  const tabindex = current ? 0 : -1;
  return h(
    "tr",
    {
      key: row.id,
      class: `job ${fits ? "" : "left"} ${selected ? "selected" : ""}`,
      title: row.gone ? "It was deleted." : fits ? undefined : "It no longer fits the filters.",
      onfocusin: focus,
    },
    selected !== null && h("td", { class: "of-check" }, check(row, options, tabindex)),
    h("td", { class: "of-state" }, row.gone ? badge("canceled", "deleted") : stateOf(row)),
    h("td", { class: "of-task" }, taskOf(row, tabindex)),
    h("td", { class: "of-queue cut" }, other("queue", row.queue, tabindex)),
    h("td", { class: "of-progress" }, progressOf(row)),
    h("td", { class: "of-tags" }, tagsOf(row, tabindex)),
    h(
      "td",
      { class: "of-owner" },
      h("div", { class: "cut" }, row.owner && other("owner", row.owner, tabindex)),
      h("div", { class: "cut small soft" }, row.team && other("team", row.team, tabindex)),
    ),
    h("td", { class: "of-attempts number", title: attemptsTitle(row) }, row.attempt || "–"),
    h("td", { class: "of-time" }, timeOf(row)),
  );
}

/** @param {Row} row @param {RowOptions} options @param {number} tabindex */
const check = (row, { selected, select }, tabindex) =>
  h("input", {
    type: "checkbox",
    class: "check",
    tabindex,
    checked: selected === true,
    "aria-label": `Select ${row.task} ${brief(row.id)}`,
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
      href: to(`jobs/${encodeURIComponent(row.id)}`),
      tabindex,
    },
    h("span", { class: "cut", title: row.task }, row.task),
    h("span", { class: "cut mono soft", title: row.id }, brief(row.id)),
  );

/**
 * A link to what else has the same.
 *
 * @param {string} name
 * @param {string} value
 * @param {number} tabindex
 */
const other = (name, value, tabindex) =>
  h("a", { href: to("jobs", { [name]: value }), title: `${name} ${value}`, tabindex }, value);

/** @param {Row} row @param {number} tabindex */
const tagsOf = ({ tags }, tabindex) =>
  h(
    "div",
    { class: "tags", title: tags.join("\n") },
    tags.map((tag) =>
      h("a", { class: "tag cut", href: to("jobs", { tag }), tabindex, key: tag }, tag),
    ),
  );

/** @param {Row} row */
const attemptsTitle = ({ attempt, retryCount, crashCount }) =>
  attempt === 0
    ? "not started yet"
    : `attempt ${attempt}; retries ${retryCount}, crashes ${crashCount}`;

/** What goes on, what it waits for, or why it ended. @param {Row} row */
function progressOf(row) {
  if (row.state === "running") return running(row);
  const [text, note] = standing(row);
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
  const doing = [...new Set([phase, stage])].filter((one) => one !== null).join(" · ");
  return [
    bar(percent, state),
    h(
      "div",
      { class: "cut small soft", title: doing || undefined },
      `${percent} %`,
      doing && ` · ${doing}`,
    ),
  ];
}

/** @param {Row} row @returns {[string, Given]} */
function standing(row) {
  const { state, errorCode, dueAt, percent } = row;
  if (state === "retrying") return [errorCode ?? "", dueAt ? `again ${ago(dueAt)}` : ""];
  if (state === "failed" || state === "canceled") {
    return [
      errorCode ?? "",
      [row.retriedAs !== null ? "retried" : percent > 0 && `at ${percent} %`],
    ];
  }
  if (state === "succeeded") return ["", ""];
  if (row.held) return ["held until it is submitted", ""];
  if (row.waitingFor > 0)
    return [`waits for ${row.waitingFor} other${row.waitingFor > 1 ? "s" : ""}`, ""];
  if (row.gate !== null) return [`waits at limit ${row.gate}`, row.limitKey ?? ""];
  if (dueAt && new Date(dueAt).getTime() > Date.now()) return [`begins ${ago(dueAt)}`, ""];
  return ["", ""];
}

/** When it was made, and how long it took, takes or waits. @param {Row} row */
function timeOf(row) {
  const { createdAt, startedAt, firstStartedAt, endedAt, queuedAt, state } = row;
  const from = state === "running" ? startedAt : endedAt ? firstStartedAt : null;
  const waiting = state === "queued" && queuedAt ? `waits ${whole(since(queuedAt))}` : "";
  const length = from ? since(from, endedAt ?? undefined) : null;
  return [
    h("time", { datetime: createdAt, title: `created ${moment(createdAt)}` }, ago(createdAt)),
    h(
      "div",
      { class: "small soft" },
      length === null ? waiting : endedAt ? `took ${span(length)}` : `for ${whole(length)}`,
    ),
  ];
}

/** Of what goes on, whole seconds will do. @param {number} seconds */
const whole = (seconds) => (seconds < 10 ? `${Math.floor(seconds)} s` : span(seconds));
