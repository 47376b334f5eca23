/** Toolbar above the job list: counts and pages, selection actions, or progress of an action. */

/** @import { Count } from "../client/windlass.js" */
/** @import { Renderable } from "../view/virtual-dom.js" */
/** @import { ActionName } from "./actions.js" */
/** @import { BulkAction } from "./bulk-actions.js" */

import { number, plural } from "../format.js";
import { h } from "../view/virtual-dom.js";
import { bar, button } from "../view/components.js";
import { countText } from "./job-counts.js";
import { PAGE } from "./job-list.js";
import { ACTIONS } from "./actions.js";

/**
 * @typedef {object} ListBarOptions
 * @property {Count | null} total
 * @property {number} newCount
 * @property {() => void} show
 * @property {() => void} help
 * @property {Renderable} pages
 */

/** @param {ListBarOptions} options */
export const listBar = ({ total, newCount, show, help, pages }) => [
  h(
    "span",
    { class: "soft small total" },
    total === null || (total.capped && total.count === 0) ? "" : countText(total),
  ),
  h(
    "span",
    { class: "new-jobs", role: "status" },
    newCount > 0 &&
      button(`Show ${newCount >= PAGE ? `${PAGE}+ new jobs` : plural(newCount, "new job")}`, show, {
        kind: "main",
        slim: true,
        title: "n",
      }),
  ),
  h(
    "span",
    { class: "wide-only" },
    button("Shortcuts", help, {
      slim: true,
      kind: "plain",
      label: "Keyboard shortcuts",
      title: "?",
    }),
  ),
  pages,
];

/**
 * @typedef {object} SelectionBarOptions
 * @property {number} count
 * @property {boolean} all
 * @property {boolean} busy counting or confirming
 * @property {(() => void) | null} page selects the page, if it is not
 * @property {(() => void) | null} everything selects all matching jobs, if there are more
 * @property {ActionName[]} actions
 * @property {(action: ActionName) => void} act
 * @property {() => void} clear
 */

/** @param {SelectionBarOptions} options */
export const selectionBar = ({ count, all, busy, page, everything, actions, act, clear }) => [
  h(
    "span",
    { class: "small total", role: "status" },
    h("strong", null, all ? "All matching jobs" : `${number(count)} selected`),
  ),
  page && button("Select page", page, { slim: true, kind: "plain" }),
  everything && button("Select all matching", everything, { slim: true, kind: "plain" }),
  actions.map((action) =>
    button(ACTIONS[action].name, () => act(action), {
      slim: true,
      icon: ACTIONS[action].icon,
      kind: ACTIONS[action].danger ? "danger" : undefined,
      disabled: busy,
    }),
  ),
  actions.length === 0 &&
    h("span", { class: "soft small" }, "No action applies to this selection."),
  button("Clear", clear, { slim: true, kind: "plain", label: "Clear selection", title: "Esc" }),
];

/** @param {BulkAction} work */
export const progressBar = (work) => [
  h(
    "span",
    { class: "small total", role: "status" },
    `${ACTIONS[work.action].doing} … ${number(work.done + work.refusedCount)}`,
    work.total !== null && ` of ${number(work.total)}`,
    work.refusedCount > 0 && `, ${number(work.refusedCount)} refused`,
  ),
  bar(work.percent, "running", ACTIONS[work.action].doing),
  button(work.signal.aborted ? "Stopping …" : "Stop", () => work.stop(), {
    slim: true,
    disabled: work.signal.aborted,
  }),
];
