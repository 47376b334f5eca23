/** The list itself: a table whose rows keep their height and their place. */

/** @import { Row } from "./list.js" */
/** @import { Selection } from "./selection.js" */

import { to } from "../router.js";
import { may } from "../session.js";
import { h } from "../view/dom.js";
import { empty } from "../view/parts.js";
import { PAGE } from "./list.js";
import { jobRow } from "./row.js";

/**
 * @typedef {object} TableOptions
 * @property {boolean} busy
 * @property {string | null} current
 * @property {boolean} selectable
 * @property {Selection} selection
 * @property {(row: Row) => boolean} fits
 * @property {(id: string) => void} focus
 * @property {(id: string, range: boolean) => void} select
 * @property {() => void} page selects the page, or nothing
 */

const COLUMNS = /** @type {const} */ ([
  ["state", "State"],
  ["task", "Task"],
  ["queue", "Queue"],
  ["progress", "Progress"],
  ["tags", "Tags"],
  ["owner", "Owner"],
  ["attempts", "Attempts"],
  ["time", "Created"],
]);

/** @param {Row[] | null} rows null: not known yet @param {TableOptions} options */
export const jobTable = (rows, options) =>
  h(
    "div",
    { class: "card jobs", key: "jobs" },
    h(
      "table",
      {
        "aria-label": "Jobs, the newest first",
        "aria-busy": String(options.busy),
        class: options.busy ? "busy" : "",
      },
      head(rows ?? [], options),
      h("tbody", null, rows === null ? bones(options) : rows.map((row) => bodyRow(row, options))),
    ),
  );

/** @param {Row[]} rows @param {TableOptions} options */
function head(rows, { selectable, selection, page }) {
  const chosen = rows.filter(({ id }) => selection.has(id)).length;
  return h(
    "thead",
    null,
    h(
      "tr",
      null,
      selectable &&
        h(
          "th",
          { class: "of-check", scope: "col" },
          h("input", {
            type: "checkbox",
            class: "check",
            "aria-label": "Select this page",
            checked: chosen > 0 && chosen === rows.length,
            indeterminate: chosen > 0 && chosen < rows.length,
            onclick: page,
          }),
        ),
      COLUMNS.map(([name, text]) =>
        h("th", { class: `of-${name} ${name === "attempts" ? "number" : ""}`, scope: "col" }, text),
      ),
    ),
  );
}

/** @param {Row} row @param {TableOptions} options */
const bodyRow = (row, { current, selectable, selection, fits, focus, select }) =>
  jobRow(row, {
    fits: fits(row),
    current: row.id === current,
    selected: selectable ? selection.has(row.id) : null,
    focus: () => focus(row.id),
    select: (event) => select(row.id, event.shiftKey),
  });

/** Room for the rows that are about to come. @param {TableOptions} options */
const bones = ({ selectable }) =>
  Array.from({ length: PAGE }, (_, at) =>
    h(
      "tr",
      { class: "job bone", key: `bone-${at}`, "aria-hidden": "true" },
      selectable && h("td", { class: "of-check" }),
      COLUMNS.map(([name]) => h("td", { class: `of-${name}` }, h("span", { class: "skeleton" }))),
    ),
  );

/** @param {boolean} narrow @param {boolean} more whether older ones were not looked at */
export function nothing(narrow, more) {
  if (more) {
    return empty(
      "No job matches among the newest",
      "There are older ones that were not looked at: go on to the older page.",
      null,
      "search",
    );
  }
  if (narrow) {
    return empty(
      "No job matches these filters",
      "Clear some of them, or look at all jobs.",
      h("a", { class: "button", href: to("jobs") }, "All jobs"),
      "search",
    );
  }
  return empty(
    "There are no jobs yet",
    "Enqueue one: windlass enqueue <task>",
    may("produce") && h("a", { class: "button main", href: to("enqueue") }, "Enqueue a job"),
  );
}
