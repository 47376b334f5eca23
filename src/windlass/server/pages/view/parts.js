/** The parts that pages are made of. */

/** @import { Given } from "./dom.js" */
/** @import { Icon } from "./icons.js" */
/** @import { JobSummary, State, WindlassError } from "../client/windlass.js" */

import { ago, brief, moment } from "../format.js";
import { to } from "../router.js";
import { h } from "./dom.js";
import { icon } from "./icons.js";
import { toast } from "./toast.js";

/** @type {State[]} */
export const STATES = [
  "created",
  "queued",
  "running",
  "retrying",
  "succeeded",
  "failed",
  "canceled",
];

/** @param {State | null | undefined} state */
export const ended = (state) => state === "succeeded" || state === "failed" || state === "canceled";

/** @param {State} state @param {Given} [text] */
export const badge = (state, text = state) =>
  h("span", { class: `badge state-${state}` }, h("span", { class: "dot" }), text);

/**
 * @param {number} percent
 * @param {State} state
 * @param {string} [label]
 */
export const bar = (percent, state, label = "progress") =>
  h(
    "span",
    {
      class: `bar state-${state}`,
      role: "progressbar",
      "aria-label": label,
      "aria-valuenow": Math.round(percent),
      "aria-valuemin": 0,
      "aria-valuemax": 100,
    },
    h("span", { style: { width: `${percent}%` } }),
  );

/** How long ago; the whole of it as a hint. @param {string | null | undefined} time */
export const when = (time) =>
  time ? h("time", { datetime: time, title: moment(time), class: "nowrap" }, ago(time)) : "–";

/**
 * @typedef {object} ButtonOptions
 * @property {Icon} [icon]
 * @property {"main" | "danger" | "plain" | "danger main"} [kind]
 * @property {boolean} [slim]
 * @property {boolean} [disabled]
 * @property {string} [title]
 * @property {string} [label] what a screen reader says, if the text is not enough
 * @property {boolean} [pressed]
 * @property {boolean} [expanded]
 * @property {"submit" | "button"} [type]
 */

/**
 * @param {Given} text
 * @param {((event: MouseEvent) => unknown) | undefined} click
 * @param {ButtonOptions} [options]
 */
export const button = (text, click, options = {}) =>
  h(
    "button",
    {
      type: options.type ?? "button",
      class: `button ${options.kind ?? ""} ${options.slim ? "slim" : ""}`,
      disabled: options.disabled ?? false,
      title: options.title,
      "aria-label": options.label,
      "aria-pressed": options.pressed === undefined ? undefined : String(options.pressed),
      "aria-expanded": options.expanded === undefined ? undefined : String(options.expanded),
      onclick: click,
    },
    options.icon && icon(options.icon),
    text,
  );

/** @param {string} path @param {Given} text @param {Record<string, any>} [query] */
export const link = (path, text, query) => h("a", { href: to(path, query) }, text);

/** @param {string} id @param {Given} [text] */
export const jobLink = (id, text = brief(id)) =>
  h("a", { href: to(`jobs/${encodeURIComponent(id)}`), class: "mono", title: id }, text);

/** @param {string} text @param {Given[]} more beside the heading */
export const title = (text, ...more) => h("div", { class: "title" }, h("h1", null, text), more);

/**
 * @param {Given} heading
 * @param {Given} inside
 * @param {{ beside?: Given, padded?: boolean, class?: string, key?: string }} [options]
 */
export const card = (heading, inside, options = {}) =>
  h(
    "section",
    { class: `card ${options.class ?? ""}`, key: options.key },
    h("header", null, h("h2", null, heading), options.beside),
    options.padded === false ? inside : h("div", { class: "inside" }, inside),
  );

/** @param {string} heading @param {Given} [text] @param {Given} [action] @param {Icon} [picture] */
export const empty = (heading, text = null, action = null, picture = "nothing") =>
  h("div", { class: "empty" }, icon(picture), h("h2", null, heading), h("p", null, text), action);

/**
 * What went wrong, and what to do.
 *
 * @param {unknown} error
 * @param {(() => unknown) | null} [again]
 */
export function trouble(error, again = null) {
  const said = /** @type {Partial<WindlassError>} */ (error);
  return h(
    "div",
    { class: "note state-failed", role: "alert" },
    h(
      "div",
      null,
      h("strong", null, said.detail || said.message || String(error)),
      said.advice && h("p", { class: "soft" }, said.advice),
    ),
    again && button("Try again", again, { slim: true, icon: "retry" }),
  );
}

/**
 * @template T
 * @typedef {object} Column
 * @property {string} name
 * @property {(row: T) => Given} cell
 * @property {boolean} [number] right-aligned
 * @property {string} [class]
 */

/**
 * A table; on a phone each row is a small card, with the names of the columns in it.
 *
 * @template T
 * @param {string} label
 * @param {Column<T>[]} columns
 * @param {T[]} rows
 * @param {(row: T, place: number) => string | number} key
 * @param {(row: T) => Record<string, any>} [props] of a row
 */
export const table = (label, columns, rows, key, props = () => ({})) =>
  h(
    "div",
    { class: "card scroll", tabindex: 0, role: "region", "aria-label": label },
    h(
      "table",
      { class: "rows" },
      h("thead", null, h("tr", null, columns.map(headOf))),
      h(
        "tbody",
        null,
        rows.map((row, place) =>
          h(
            "tr",
            { ...props(row), key: key(row, place) },
            columns.map((column) => cellOf(column, row)),
          ),
        ),
      ),
    ),
  );

/** @param {Column<any>} column */
const headOf = ({ name, number }) =>
  h("th", { scope: "col", class: number ? "number" : undefined }, name);

/** @param {Column<any>} column @param {any} row */
const cellOf = (column, row) =>
  h(
    "td",
    { "data-label": column.name, class: `${column.number ? "number" : ""} ${column.class ?? ""}` },
    column.cell(row),
  );

/** @param {[Given, Given][]} pairs */
export const facts = (pairs) =>
  h(
    "dl",
    { class: "facts" },
    pairs.map(([name, value]) => [h("dt", null, name), h("dd", null, value)]),
  );

/** @param {string[]} tags */
export const tagList = (tags) =>
  tags.map((tag) => [h("a", { class: "tag", href: to("jobs", { tag }) }, tag), " "]);

/** @param {() => string} text @param {string} what */
export const copyButton = (text, what) =>
  button(
    "Copy",
    async () => {
      try {
        await navigator.clipboard.writeText(text());
        toast(`Copied ${what}.`);
      } catch {
        toast("The browser does not let this page copy; select the text instead.", "failed");
      }
    },
    { icon: "copy", slim: true, kind: "plain", label: `Copy ${what}` },
  );

/** Values that were drawn: a page is drawn with every event, and a value may be a megabyte. */
const drawn = new WeakMap();

/** A value as indented JSON, with its parts told apart. @param {any} value */
export function json(value) {
  const known = drawn.get(value);
  if (known !== undefined) return known;
  const text = JSON.stringify(value, null, 2) ?? "null";
  const shape = h("pre", { class: "code", tabindex: 0 }, tokens(text));
  if (typeof value === "object" && value !== null) drawn.set(value, shape);
  return shape;
}

const TOKEN =
  /("(?:\\.|[^"\\])*")(\s*:)?|\b(?:true|false|null)\b|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

/** @param {string} text @returns {Given[]} */
function tokens(text) {
  if (text.length > 100_000) return [text];
  /** @type {Given[]} */
  const found = [];
  let last = 0;
  for (const match of text.matchAll(TOKEN)) {
    found.push(text.slice(last, match.index));
    const kind = match[2] !== undefined ? "name" : match[1] !== undefined ? "text" : "value";
    found.push(h("span", { class: kind }, match[1] ?? match[0]), match[2] ?? "");
    last = match.index + match[0].length;
  }
  return [...found, text.slice(last)];
}

/** Whether a verb makes sense for a job as it stands. */
export const CAN = {
  cancel: (/** @type {JobSummary} */ job) => !ended(job.state) && !job.cancelRequested,
  retry: (/** @type {JobSummary} */ job) =>
    (job.state === "failed" || job.state === "canceled") && job.retriedAs === null,
  resume: (/** @type {JobSummary} */ job) => job.state === "failed" && job.retriedAs === null,
  submit: (/** @type {JobSummary} */ job) => job.state === "created" && job.held,
  delete: (/** @type {JobSummary} */ job) => ended(job.state),
};
