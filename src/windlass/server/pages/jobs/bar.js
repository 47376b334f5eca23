/**
 * The line above the list: how many there are and which are new, or what can be done to the chosen.
 */

/** @import { Count } from "../client/windlass.js" */
/** @import { Given } from "../view/dom.js" */
/** @import { Verb } from "./verbs.js" */
/** @import { Work } from "./work.js" */

import { number, plural } from "../format.js";
import { h } from "../view/dom.js";
import { bar, button } from "../view/parts.js";
import { amount } from "./counts.js";
import { PAGE } from "./list.js";
import { VERBS } from "./verbs.js";

/**
 * @typedef {object} BarOptions
 * @property {Count | null} total
 * @property {number} fresh
 * @property {() => void} show
 * @property {() => void} help
 * @property {Given} pages
 */

/** @param {BarOptions} options */
export const plainBar = ({ total, fresh, show, help, pages }) => [
  h(
    "span",
    { class: "soft small total" },
    total === null || (total.capped && total.count === 0) ? "" : amount(total),
  ),
  h(
    "span",
    { class: "fresh", role: "status" },
    fresh > 0 &&
      button(`${fresh >= PAGE ? `${PAGE}+ new jobs` : plural(fresh, "new job")}: show`, show, {
        kind: "main",
        slim: true,
        title: "n",
      }),
  ),
  h(
    "span",
    { class: "wide-only" },
    button("Keys", help, { slim: true, kind: "plain", label: "Keys of this page", title: "?" }),
  ),
  pages,
];

/**
 * @typedef {object} ChosenOptions
 * @property {number} count
 * @property {boolean} all
 * @property {boolean} busy something is being counted or asked
 * @property {(() => void) | null} page chooses the whole page, if it is not
 * @property {(() => void) | null} everything chooses all that match, if there is more than the page
 * @property {Verb[]} verbs
 * @property {(verb: Verb) => void} act
 * @property {() => void} clear
 */

/** @param {ChosenOptions} options */
export const chosenBar = ({ count, all, busy, page, everything, verbs, act, clear }) => [
  h(
    "span",
    { class: "small total", role: "status" },
    h("strong", null, all ? "All that match" : `${number(count)} selected`),
  ),
  page && button("Select page", page, { slim: true, kind: "plain" }),
  everything && button("Select all that match", everything, { slim: true, kind: "plain" }),
  verbs.map((verb) =>
    button(VERBS[verb].name, () => act(verb), {
      slim: true,
      icon: VERBS[verb].icon,
      kind: VERBS[verb].danger ? "danger" : undefined,
      disabled: busy,
    }),
  ),
  verbs.length === 0 &&
    h("span", { class: "soft small" }, "Nothing can be done to them as they stand."),
  button("Clear", clear, { slim: true, kind: "plain", label: "Clear the selection", title: "Esc" }),
];

/** @param {Work} work */
export const workBar = (work) => [
  h(
    "span",
    { class: "small total", role: "status" },
    `${VERBS[work.verb].doing} … ${number(work.done + work.refusedCount)}`,
    work.total !== null && ` of ${number(work.total)}`,
    work.refusedCount > 0 && `, ${number(work.refusedCount)} refused`,
  ),
  bar(work.percent, "running", VERBS[work.verb].doing),
  button(work.signal.aborted ? "Stopping …" : "Stop", () => work.stop(), {
    slim: true,
    disabled: work.signal.aborted,
  }),
];
