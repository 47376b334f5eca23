/** Components shared by the pages. */

/** @import { Renderable } from "./virtual-dom.js" */
/** @import { Icon } from "./icons.js" */
/** @import { State, WindlassError } from "../client/windlass.js" */

import { ago, shortId, dateTime } from "../format.js";
import { pageUrl } from "../navigation.js";
import { h } from "./virtual-dom.js";
import { icon } from "./icons.js";
import { toast } from "./toast.js";

/** @param {State} state @param {Renderable} [text] */
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

/** Render a relative time, full in the tooltip. @param {string | null | undefined} time */
export const when = (time) =>
  time ? h("time", { datetime: time, title: dateTime(time), class: "nowrap" }, ago(time)) : "–";

/**
 * @typedef {object} ButtonOptions
 * @property {Icon} [icon]
 * @property {"main" | "danger" | "plain" | "danger main"} [kind]
 * @property {boolean} [slim]
 * @property {boolean} [disabled]
 * @property {string} [title]
 * @property {string} [label] for screen readers, if the text is not enough
 * @property {boolean} [pressed]
 * @property {boolean} [expanded]
 * @property {"submit" | "button"} [type]
 */

/**
 * @param {Renderable} text
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

/** @param {string} path @param {Renderable} text @param {Record<string, any>} [query] */
export const link = (path, text, query) => h("a", { href: pageUrl(path, query) }, text);

/** @param {string} id @param {Renderable} [text] */
export const jobLink = (id, text = shortId(id)) =>
  h("a", { href: pageUrl(`jobs/${encodeURIComponent(id)}`), class: "mono", title: id }, text);

/** @param {string} text @param {Renderable[]} trailing after the heading */
export const title = (text, ...trailing) =>
  h("div", { class: "title" }, h("h1", null, text), trailing);

/**
 * @param {Renderable} heading
 * @param {Renderable} content
 * @param {{ trailing?: Renderable, padded?: boolean, class?: string, key?: string }} [options]
 */
export const card = (heading, content, options = {}) =>
  h(
    "section",
    { class: `card ${options.class ?? ""}`, key: options.key },
    h("header", null, h("h2", null, heading), options.trailing),
    options.padded === false ? content : h("div", { class: "inside" }, content),
  );

/**
 * @param {string} heading
 * @param {Renderable} [text]
 * @param {Renderable} [action]
 * @param {Icon} [picture]
 */
export const empty = (heading, text = null, action = null, picture = "inbox") =>
  h("div", { class: "empty" }, icon(picture), h("h2", null, heading), h("p", null, text), action);

/**
 * Render an error with its advice and an optional retry button.
 *
 * @param {unknown} error
 * @param {(() => unknown) | null} [retry]
 */
export function errorNote(error, retry = null) {
  const problem = /** @type {Partial<WindlassError>} */ (error);
  return h(
    "div",
    { class: "note state-failed", role: "alert" },
    h(
      "div",
      null,
      h("strong", null, problem.detail || problem.message || String(error)),
      problem.advice && h("p", { class: "soft" }, problem.advice),
    ),
    retry && button("Retry", retry, { slim: true, icon: "retry" }),
  );
}

/**
 * @template T
 * @typedef {object} Column
 * @property {string} name
 * @property {(row: T) => Renderable} cell
 * @property {boolean} [number] right-aligned
 * @property {string} [class]
 */

/**
 * Render a table. On a phone, each row is a card with the column names.
 *
 * @template T
 * @param {string} label
 * @param {Column<T>[]} columns
 * @param {T[]} rows
 * @param {(row: T, index: number) => string | number} key
 * @param {(row: T) => Record<string, any>} [props] of a row
 */
export const table = (label, columns, rows, key, props = () => ({})) =>
  h(
    "div",
    { class: "card scroll", tabindex: 0, role: "region", "aria-label": label },
    h(
      "table",
      { class: "rows" },
      h("thead", null, h("tr", null, columns.map(headerCell))),
      h(
        "tbody",
        null,
        rows.map((row, index) =>
          h(
            "tr",
            { ...props(row), key: key(row, index) },
            columns.map((column) => bodyCell(column, row)),
          ),
        ),
      ),
    ),
  );

/** @param {Column<any>} column */
const headerCell = ({ name, number }) =>
  h("th", { scope: "col", class: number ? "number" : undefined }, name);

/** @param {Column<any>} column @param {any} row */
const bodyCell = (column, row) =>
  h(
    "td",
    { "data-label": column.name, class: `${column.number ? "number" : ""} ${column.class ?? ""}` },
    column.cell(row),
  );

/** @param {[Renderable, Renderable][]} pairs */
export const fieldList = (pairs) =>
  h(
    "dl",
    { class: "field-list" },
    pairs.map(([name, value]) => [h("dt", null, name), h("dd", null, value)]),
  );

/** @param {string[]} tags */
export const tagList = (tags) =>
  tags.map((tag) => [h("a", { class: "tag", href: pageUrl("jobs", { tag }) }, tag), " "]);

/** @param {() => string} text @param {string} what */
export const copyButton = (text, what) =>
  button(
    "Copy",
    async () => {
      try {
        await navigator.clipboard.writeText(text());
        toast(`Copied ${what}.`);
      } catch {
        toast("The browser blocked copying. Select the text and copy it manually.", "failed");
      }
    },
    { icon: "copy", slim: true, kind: "plain", label: `Copy ${what}` },
  );
