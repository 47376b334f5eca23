/**
 * The fields by which jobs are found. Each is in the address when it is left, the text as it is
 * typed.
 */

/** @import { Name, Wanted } from "./wanted.js" */
/** @import { Counts } from "./counts.js" */

import { go, to } from "../router.js";
import { h } from "../view/dom.js";
import { icon } from "../view/icons.js";
import { button } from "../view/parts.js";
import { COMMON, givenChips, stateChips } from "./chips.js";
import { address, changed, changedSince, narrow, sinceOf } from "./wanted.js";

const PAUSE = 300; // milliseconds after the last letter
export const SEARCH = "jobs-search";
const ID = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i;

/** Fields that are not always seen, not even on a wide screen. @type {Name[]} */
const RARE = ["tag", "owner", "team", "worker"];

export class Filters {
  open = false;
  /** What is being typed. @type {Partial<Record<Name, string>>} */
  #drafts = {};
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  #timer;
  /** Whether what is typed has a place in the history of its own already. */
  #typing = false;
  #wanted;
  #changed;

  /**
   * @param {() => Wanted} wanted
   * @param {() => void} changed
   */
  constructor(wanted, changed) {
    this.#wanted = wanted;
    this.#changed = changed;
  }

  /**
   * @param {Counts} counts
   * @param {{ queues: string[], tasks: string[] }} known
   */
  looks(counts, known) {
    const wanted = this.#wanted();
    return h(
      "search",
      { class: "filters" },
      stateChips(wanted, counts),
      h(
        "div",
        { class: `fields ${this.open ? "opened" : ""}` },
        this.#search(),
        COMMON.map((name) => this.#field(name, "common")),
        this.#time(wanted),
        RARE.map((name) => this.#field(name, "rare")),
        this.#moment("createdFrom", "Created from"),
        this.#moment("createdTo", "Created before"),
        h(
          "div",
          { class: "ends" },
          button(this.open ? "Fewer filters" : "More filters", () => this.#toggle(), {
            icon: "filter",
            kind: "plain",
            expanded: this.open,
          }),
          button("Clear", () => go(address({ values: {}, since: null, cursor: null })), {
            kind: "plain",
            disabled: !narrow(wanted),
            label: "Clear all filters",
          }),
        ),
      ),
      givenChips(wanted, this.open),
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

  /** The address has changed: what was typed before is of the past. */
  moved() {
    const typing = document.activeElement?.id === SEARCH ? this.#drafts.text : undefined;
    this.#drafts = typing === undefined ? {} : { text: typing };
    if (typing === undefined) this.close();
  }

  /** What is typed and not yet asked for never is. */
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
        placeholder: "Task, tag, error or id",
        "aria-label": "Text in task, tag or error, or the id of a job",
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
        go(to(`jobs/${text.trim().toLowerCase()}`));
        return;
      }
      const replace = this.#typing;
      this.#typing = true;
      go(address(changed(this.#wanted(), "text", [text.trim()])), { replace });
    }, PAUSE);
  }

  /** @param {Name} name @param {string} kind */
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

  /** The first value is in the field; others are chips. @param {Name} name @param {string} value */
  #put(name, value) {
    const rest = this.#wanted().values[name]?.slice(1) ?? [];
    delete this.#drafts[name];
    go(address(changed(this.#wanted(), name, [...new Set([value, ...rest])])));
  }

  /** @param {Name} name */
  #value(name) {
    return this.#drafts[name] ?? this.#wanted().values[name]?.[0] ?? "";
  }

  /** @param {Wanted} wanted */
  #time(wanted) {
    const { createdFrom, createdTo } = wanted.values;
    const own = wanted.since === null && (createdFrom !== undefined || createdTo !== undefined);
    const choose = (/** @type {Event} */ event) => {
      const since = sinceOf(textOf(event));
      if (textOf(event) === "own") this.#toggle(true);
      else go(address(changedSince(wanted, since)));
    };
    return h(
      "div",
      { class: "field common" },
      h(
        "select",
        {
          class: "input",
          "aria-label": "Created",
          value: own ? "own" : (wanted.since ?? ""),
          onchange: choose,
        },
        h("option", { value: "" }, "Any time"),
        h("option", { value: "hour" }, "Last hour"),
        h("option", { value: "day" }, "Last day"),
        h("option", { value: "week" }, "Last week"),
        h("option", { value: "own" }, "From … to …"),
      ),
    );
  }

  /** @param {"createdFrom" | "createdTo"} name @param {string} label */
  #moment(name, label) {
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
        value: this.#drafts[name] ?? local(this.#wanted().values[name]?.[0]),
        oninput: (/** @type {InputEvent} */ event) => (this.#drafts[name] = textOf(event)),
        onchange: put,
      }),
    );
  }
}

/** @param {Event} event */
const textOf = (event) => /** @type {HTMLInputElement} */ (event.target).value;

/** As such fields have it: the time here, without its zone. @param {string | undefined} time */
function local(time) {
  const given = new Date(time ?? "");
  if (Number.isNaN(given.getTime())) return "";
  return new Date(given.getTime() - given.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}
