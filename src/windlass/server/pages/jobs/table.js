/** Table of jobs. Rows keep their height and position. */

/** @import { Row } from "./job-list.js" */
/** @import { Selection } from "./selection.js" */

import { pageUrl } from "../navigation.js";
import { may } from "../session.js";
import { h } from "../view/virtual-dom.js";
import { empty } from "../view/components.js";
import { PAGE } from "./job-list.js";
import { jobRow } from "./row.js";

/**
 * @typedef {object} TableOptions
 * @property {boolean} busy
 * @property {string | null} current
 * @property {boolean} selectable
 * @property {Selection} selection
 * @property {(row: Row) => boolean} matches
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

/** @param {Row[] | null} rows null: loading @param {TableOptions} options */
export const jobTable = (rows, options) =>
  h(
    "div",
    { class: "card jobs", key: "jobs" },
    h(
      "table",
      {
        "aria-label": "Jobs, newest first",
        "aria-busy": String(options.busy),
        class: options.busy ? "busy" : "",
      },
      head(rows ?? [], options),
      h(
        "tbody",
        null,
        rows === null ? placeholders(options) : rows.map((row) => bodyRow(row, options)),
      ),
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
const bodyRow = (row, { current, selectable, selection, matches, focus, select }) =>
  jobRow(row, {
    matches: matches(row),
    current: row.id === current,
    selected: selectable ? selection.has(row.id) : null,
    focus: () => focus(row.id),
    select: (event) => select(row.id, event.shiftKey),
  });

/** Placeholder rows. @param {TableOptions} options */
const placeholders = ({ selectable }) =>
  Array.from({ length: PAGE }, (_, at) =>
    h(
      "tr",
      { class: "job placeholder", key: `placeholder-${at}`, "aria-hidden": "true" },
      selectable && h("td", { class: "of-check" }),
      COLUMNS.map(([name]) => h("td", { class: `of-${name}` }, h("span", { class: "skeleton" }))),
    ),
  );

/** @param {boolean} filtered @param {boolean} more whether older jobs were not searched */
export function emptyList(filtered, more) {
  if (more) {
    return empty(
      "No matches among the newest jobs",
      "Older jobs were not searched yet: go to the next page.",
      null,
      "search",
    );
  }
  if (filtered) {
    return empty(
      "No jobs match these filters",
      "Clear some filters, or view all jobs.",
      h("a", { class: "button", href: pageUrl("jobs") }, "All jobs"),
      "search",
    );
  }
  return empty(
    "No jobs yet",
    "Enqueue one: windlass enqueue <task>",
    may("produce") && h("a", { class: "button main", href: pageUrl("enqueue") }, "Enqueue a job"),
  );
}
