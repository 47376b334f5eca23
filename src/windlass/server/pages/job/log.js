/** The log of a job: as it comes, searched, filtered, paused, replayed, taken along. */

/** @import { Given } from "../view/dom.js" */
/** @import { View } from "../page.js" */
/** @import { JobModel } from "./model.js" */
/** @import { Sort } from "./saying.js" */

import { number, plural } from "../format.js";
import { go, to } from "../router.js";
import { h } from "../view/dom.js";
import { button } from "../view/parts.js";
import { asText, lineView } from "./line.js";
import { Replay } from "./replay.js";
import { replayBar } from "./replay-bar.js";
import { SORTS } from "./saying.js";
import { Scroller } from "./scroller.js";
import { Shown } from "./shown.js";

export class Log {
  #shown = new Shown();
  /** @type {ReadonlySet<Sort>} */
  #hidden = new Set();
  #query = "";
  /** The line of the match that one is at; -1: none. */
  #current = -1;
  /** How many rows there were when one stopped following. */
  #seen = 0;

  /**
   * @param {View} view
   * @param {JobModel} model
   */
  constructor(view, model) {
    this.view = view;
    this.model = model;
    this.replay = new Replay(model, () => view.changed());
    this.scroller = new Scroller(
      (line) =>
        lineView(line, this.#shown.pattern, line.n === this.#current, (seq) => this.from(seq)),
      () => this.#turned(),
    );
    view.onClose(() => this.replay.pause());
    this.read();
  }

  /** What the address says. */
  read() {
    const { query } = this.view.place;
    const hidden = (query.get("hide") ?? "").split(",").filter((one) => one in SORTS);
    if (hidden.join() !== [...this.#hidden].join()) {
      this.#hidden = new Set(/** @type {Sort[]} */ (hidden));
    }
    this.#query = query.get("find") ?? "";
  }

  /** @param {Record<string, string | null>} change */
  #write(change) {
    const query = new URLSearchParams(this.view.place.query);
    for (const [name, value] of Object.entries(change)) {
      if (value) query.set(name, value);
      else query.delete(name);
    }
    go(to(this.view.place.path, query), { replace: true });
  }

  get book() {
    return this.replay.on ? this.replay.book : this.model.book;
  }

  /** Replay from an event on. @param {number} seq */
  from(seq) {
    this.replay.pause();
    this.scroller.toEnd();
    this.replay.seekEvent(seq);
  }

  #turned() {
    if (!this.scroller.follow) this.#seen = this.#shown.rows.length;
    this.view.changed();
  }

  /** @param {number} step 1: the next match, -1: the one before */
  #go(step) {
    this.#shown.update(this.book, this.#hidden, this.#query); // Enter may come before the next frame
    const { matches } = this.#shown;
    if (matches.length === 0) return;
    const at = matches.findIndex((n) => n >= this.#current);
    const here = at < 0 ? matches.length : at; // or the first after where one is
    const next = step < 0 ? here - 1 : matches[here] === this.#current ? here + 1 : here;
    this.#current = matches[(next + matches.length) % matches.length];
    const following = this.scroller.follow;
    this.scroller.reveal(this.#shown.rowOf(this.#current));
    if (following) this.#turned();
    this.view.changed();
  }

  #download() {
    const blob = new Blob([asText(this.book)], { type: "text/plain;charset=utf-8" });
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = `${this.model.id}.log`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  /** @returns {Given} */
  look() {
    this.#shown.update(this.book, this.#hidden, this.#query);
    this.scroller.show(this.#shown.rows, this.book.longest);
    const { rows } = this.#shown;
    const none =
      this.book.lines.length === 0 ? "Nothing was said yet." : "All lines are filtered out.";
    return h(
      "section",
      {
        class: "log",
        key: "log",
        "aria-label": "Log",
        onkeydown: (/** @type {KeyboardEvent} */ event) => this.#key(event),
      },
      h("div", { class: "tools" }, this.#search(), this.#filters(), this.#ends()),
      h(
        "div",
        { class: "log-box" },
        h("div", {
          class: "log-lines",
          tabindex: 0,
          role: "group",
          "aria-label": "Lines of the log",
          island: (/** @type {HTMLElement} */ element) => this.scroller.attach(element),
        }),
        rows.length === 0 && h("p", { class: "nothing soft small" }, none),
        this.#reading(),
        this.#pill(),
      ),
      replayBar(this.replay),
    );
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const typing = event.target instanceof HTMLInputElement;
    if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    document.getElementById("log-search")?.focus();
  }

  #search() {
    const { matches } = this.#shown;
    const nth = matches.indexOf(this.#current) + 1;
    const told =
      this.#query === ""
        ? ""
        : nth
          ? `${number(nth)} of ${number(matches.length)}`
          : number(matches.length);
    const off = matches.length === 0;
    return h(
      "div",
      { class: "search", role: "search" },
      h("input", {
        id: "log-search",
        class: "input",
        type: "search",
        placeholder: "Search the log",
        "aria-label": "Search the log",
        value: this.#query,
        oninput: (/** @type {any} */ event) => {
          this.#current = -1;
          this.#write({ find: event.target.value });
        },
        onkeydown: (/** @type {KeyboardEvent} */ event) => {
          if (event.key === "Enter") this.#go(event.shiftKey ? -1 : 1);
        },
      }),
      h("output", { class: "soft small", "aria-label": "Matching lines" }, told),
      button("", () => this.#go(-1), {
        icon: "up",
        slim: true,
        label: "Previous match",
        disabled: off,
      }),
      button("", () => this.#go(1), {
        icon: "down",
        slim: true,
        label: "Next match",
        disabled: off,
      }),
    );
  }

  #filters() {
    const names = /** @type {Sort[]} */ (Object.keys(SORTS));
    return h(
      "div",
      { class: "kinds", role: "group", "aria-label": "Kinds of lines" },
      names.map((sort) => {
        const shown = !this.#hidden.has(sort);
        const others = [...this.#hidden].filter((one) => one !== sort);
        const hide = shown ? [...others, sort] : others;
        return button(SORTS[sort], () => this.#write({ hide: hide.join(",") }), {
          slim: true,
          pressed: shown,
        });
      }),
    );
  }

  #ends() {
    const { follow } = this.scroller;
    const turn = () => {
      if (follow) this.scroller.follow = false;
      else this.scroller.toEnd();
      this.#turned();
    };
    return h(
      "div",
      { class: "ends" },
      button(follow ? "Pause" : "Follow", turn, { icon: follow ? "pause" : "down", slim: true }),
      button("Download", () => this.#download(), {
        icon: "out",
        slim: true,
        label: "Download the log as text",
      }),
    );
  }

  /** A long log takes its time. */
  #reading() {
    const { job, heard } = this.model;
    if (job === null || !this.model.reading) return null;
    return h(
      "p",
      { class: "reading soft small", key: "reading" },
      `reading ${number(heard.seq)} of ${number(job.seq)} events …`,
    );
  }

  #pill() {
    const fresh = this.#shown.rows.length - this.#seen;
    if (this.scroller.follow || fresh <= 0) return null;
    const back = () => {
      this.scroller.toEnd();
      this.view.changed();
    };
    return h(
      "div",
      { class: "pill", key: "pill" },
      button(plural(fresh, "new line"), back, { icon: "down", slim: true, kind: "main" }),
    );
  }
}
