/**
 * Filter form of the job list. A field updates the URL when it loses focus; the search text updates
 * it while typing.
 */

/** @import { FilterName, JobQuery } from "./query.js" */
/** @import { JobCounts } from "./job-counts.js" */

import { navigate, pageUrl } from "../navigation.js";
import { h } from "../view/virtual-dom.js";
import { icon } from "../view/icons.js";
import { button } from "../view/components.js";
import { COMMON, activeChips, stateChips } from "./filter-chips.js";
import { hasFilters, rangeOf, urlOf, withFilter, withRange } from "./query.js";

const DEBOUNCE = 300; // milliseconds after the last key
export const SEARCH = "jobs-search";
const ID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/** Fields hidden until the form is expanded. @type {FilterName[]} */
const RARE = ["tag", "owner", "team", "worker"];

export class FilterForm {
  open = false;
  /** Values being typed. @type {Partial<Record<FilterName, string>>} */
  #drafts = {};
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;
  /** Whether the search text already has its own history entry. */
  #typing = false;
  #query;
  #changed;

  /**
   * @param {() => JobQuery} query
   * @param {() => void} changed
   */
  constructor(query, changed) {
    this.#query = query;
    this.#changed = changed;
  }

  /**
   * @param {JobCounts} counts
   * @param {{ queues: string[], tasks: string[] }} known
   */
  render(counts, known) {
    const query = this.#query();
    return h(
      "search",
      { class: "filters" },
      stateChips(query, counts),
      h(
        "div",
        { class: `fields ${this.open ? "opened" : ""}` },
        this.#search(),
        COMMON.map((name) => this.#field(name, "common")),
        this.#rangeSelect(query),
        RARE.map((name) => this.#field(name, "rare")),
        this.#timeField("createdFrom", "Created from"),
        this.#timeField("createdTo", "Created before"),
        h(
          "div",
          { class: "ends" },
          button(this.open ? "Fewer filters" : "More filters", () => this.#toggle(), {
            icon: "filter",
            kind: "plain",
            expanded: this.open,
          }),
          button("Clear", () => navigate(urlOf({ values: {}, range: null, cursor: null })), {
            kind: "plain",
            disabled: !hasFilters(query),
            label: "Clear all filters",
          }),
        ),
      ),
      activeChips(query, this.open),
      h(
        "datalist",
        { id: "known-queue" },
        known.queues.map((value) => h("option", { value, key: value })),
      ),
      h(
        "datalist",
        { id: "known-task" },
        known.tasks.map((value) => h("option", { value, key: value })),
      ),
    );
  }

  /** Drop typed values when the URL changes. */
  queryChanged() {
    const typing = document.activeElement?.id === SEARCH ? this.#drafts.text : undefined;
    this.#drafts = typing === undefined ? {} : { text: typing };
    if (typing === undefined) this.close();
  }

  /** Cancel a pending search. */
  close() {
    clearTimeout(this.#timer);
  }

  #toggle(open = !this.open) {
    this.open = open;
    this.#changed();
  }

  #search() {
    return h(
      "div",
      { class: "field search" },
      icon("search"),
      h("input", {
        id: SEARCH,
        class: "input",
        type: "search",
        placeholder: "Search task, tag, error or id",
        "aria-label": "Search by task, tag, error or job id",
        "aria-keyshortcuts": "/",
        spellcheck: "false",
        autocomplete: "off",
        value: this.#value("text"),
        oninput: (/** @type {InputEvent} */ event) => this.#type(textOf(event)),
        onblur: () => (this.#typing = false),
      }),
    );
  }

  /** @param {string} text */
  #type(text) {
    this.#drafts.text = text;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      if (ID.test(text.trim())) {
        navigate(pageUrl(`jobs/${text.trim().toLowerCase()}`));
        return;
      }
      const replace = this.#typing;
      this.#typing = true;
      navigate(urlOf(withFilter(this.#query(), "text", [text.trim()])), { replace });
    }, DEBOUNCE);
  }

  /** @param {FilterName} name @param {string} kind */
  #field(name, kind) {
    return h(
      "div",
      { class: `field ${kind}` },
      h("input", {
        class: "input",
        list: COMMON.includes(name) ? `known-${name}` : undefined,
        placeholder: name[0].toUpperCase() + name.slice(1),
        "aria-label": name[0].toUpperCase() + name.slice(1),
        spellcheck: "false",
        autocomplete: "off",
        autocapitalize: "off",
        value: this.#value(name),
        oninput: (/** @type {InputEvent} */ event) => (this.#drafts[name] = textOf(event)),
        onchange: (/** @type {Event} */ event) => this.#put(name, textOf(event).trim()),
      }),
    );
  }

  /** Set the first value; others are chips. @param {FilterName} name @param {string} value */
  #put(name, value) {
    const rest = this.#query().values[name]?.slice(1) ?? [];
    delete this.#drafts[name];
    navigate(urlOf(withFilter(this.#query(), name, [...new Set([value, ...rest])])));
  }

  /** @param {FilterName} name */
  #value(name) {
    return this.#drafts[name] ?? this.#query().values[name]?.[0] ?? "";
  }

  /** @param {JobQuery} query */
  #rangeSelect(query) {
    const { createdFrom, createdTo } = query.values;
    const custom = query.range === null && (createdFrom !== undefined || createdTo !== undefined);
    const choose = (/** @type {Event} */ event) => {
      const range = rangeOf(textOf(event));
      if (textOf(event) === "custom") this.#toggle(true);
      else navigate(urlOf(withRange(query, range)));
    };
    return h(
      "div",
      { class: "field common" },
      h(
        "select",
        {
          class: "input",
          "aria-label": "Created",
          value: custom ? "custom" : (query.range ?? ""),
          onchange: choose,
        },
        h("option", { value: "" }, "Any time"),
        h("option", { value: "hour" }, "Last hour"),
        h("option", { value: "day" }, "Last day"),
        h("option", { value: "week" }, "Last week"),
        h("option", { value: "custom" }, "Custom range"),
      ),
    );
  }

  /** @param {"createdFrom" | "createdTo"} name @param {string} label */
  #timeField(name, label) {
    const put = (/** @type {Event} */ event) => {
      const time = new Date(textOf(event));
      this.#put(name, Number.isNaN(time.getTime()) ? "" : time.toISOString());
    };
    return h(
      "label",
      { class: "field rare moment" },
      h("span", { class: "small soft" }, label),
      h("input", {
        class: "input",
        type: "datetime-local",
        value: this.#drafts[name] ?? local(this.#query().values[name]?.[0]),
        oninput: (/** @type {InputEvent} */ event) => (this.#drafts[name] = textOf(event)),
        onchange: put,
      }),
    );
  }
}

/** @param {Event} event */
const textOf = (event) => /** @type {HTMLInputElement} */ (event.target).value;

/** Format a local time without zone, for datetime-local inputs. @param {string | undefined} time */
function local(time) {
  const given = new Date(time ?? "");
  if (Number.isNaN(given.getTime())) return "";
  return new Date(given.getTime() - given.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}
