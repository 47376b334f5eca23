/** Log panel: live log with search, filters, pause, replay and download. */

/** @import { Renderable } from "../../view/virtual-dom.js" */
/** @import { PageView } from "../../page-view.js" */
/** @import { JobModel } from "../model.js" */
/** @import { LineKind } from "./event-text.js" */

import { number, plural } from "../../format.js";
import { navigate, pageUrl } from "../../navigation.js";
import { h } from "../../view/virtual-dom.js";
import { button } from "../../view/components.js";
import { lineView } from "./line-view.js";
import { plainText } from "./log-lines.js";
import { Replay } from "../replay/replay.js";
import { replayBar } from "../replay/replay-bar.js";
import { KINDS } from "./event-text.js";
import { VirtualScroller } from "./virtual-scroller.js";
import { LineFilter } from "./line-filter.js";

export class LogPanel {
  #filtered = new LineFilter();
  /** @type {ReadonlySet<LineKind>} */
  #hidden = new Set();
  #query = "";
  /** Line number of the current match; -1: none. */
  #current = -1;
  /** Number of rows when following stopped. */
  #rowsAtPause = 0;

  /**
   * @param {PageView} view
   * @param {JobModel} model
   */
  constructor(view, model) {
    this.view = view;
    this.model = model;
    this.replay = new Replay(model, () => view.changed());
    this.scroller = new VirtualScroller(
      (line) =>
        lineView(line, this.#filtered.pattern, line.n === this.#current, (seq) =>
          this.replayFrom(seq),
        ),
      () => this.#followChanged(),
    );
    view.onClose(() => this.replay.pause());
    this.readUrl();
  }

  /** Read filter and search text from the URL. */
  readUrl() {
    const { query } = this.view.location;
    const hidden = (query.get("hide") ?? "").split(",").filter((kind) => kind in KINDS);
    if (hidden.join() !== [...this.#hidden].join()) {
      this.#hidden = new Set(/** @type {LineKind[]} */ (hidden));
    }
    this.#query = query.get("find") ?? "";
  }

  /** @param {Record<string, string | null>} change */
  #updateUrl(change) {
    const query = new URLSearchParams(this.view.location.query);
    for (const [name, value] of Object.entries(change)) {
      if (value) query.set(name, value);
      else query.delete(name);
    }
    navigate(pageUrl(this.view.location.path, query), { replace: true });
  }

  get lines() {
    return this.replay.on ? this.replay.logLines : this.model.logLines;
  }

  /** Replay from an event. @param {number} seq */
  replayFrom(seq) {
    this.replay.pause();
    this.scroller.toEnd();
    this.replay.seekEvent(seq);
  }

  #followChanged() {
    if (!this.scroller.follow) this.#rowsAtPause = this.#filtered.rows.length;
    this.view.changed();
  }

  /** @param {number} step 1: next match, -1: previous match */
  #goToMatch(step) {
    // Enter may precede the next frame.
    this.#filtered.update(this.lines, this.#hidden, this.#query);
    const { matches } = this.#filtered;
    if (matches.length === 0) return;
    const at = matches.findIndex((n) => n >= this.#current);
    const here = at < 0 ? matches.length : at; // or the first after the current line
    const next = step < 0 ? here - 1 : matches[here] === this.#current ? here + 1 : here;
    this.#current = matches[(next + matches.length) % matches.length];
    const following = this.scroller.follow;
    this.scroller.reveal(this.#filtered.rowOf(this.#current));
    if (following) this.#followChanged();
    this.view.changed();
  }

  #download() {
    const blob = new Blob([plainText(this.lines)], { type: "text/plain;charset=utf-8" });
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = `${this.model.id}.log`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }

  /** @returns {Renderable} */
  render() {
    this.#filtered.update(this.lines, this.#hidden, this.#query);
    this.scroller.show(this.#filtered.rows, this.lines.longest);
    const { rows } = this.#filtered;
    const none =
      this.lines.lines.length === 0 ? "No log output yet." : "All lines are filtered out.";
    return h(
      "section",
      {
        class: "log",
        key: "log",
        "aria-label": "Log",
        onkeydown: (/** @type {KeyboardEvent} */ event) => this.#key(event),
      },
      h("div", { class: "tools" }, this.#search(), this.#filters(), this.#buttons()),
      h(
        "div",
        { class: "log-box" },
        h("div", {
          class: "log-lines",
          tabindex: 0,
          role: "group",
          "aria-label": "Log lines",
          island: (/** @type {HTMLElement} */ element) => this.scroller.attach(element),
        }),
        rows.length === 0 && h("p", { class: "nothing soft small" }, none),
        this.#catchUpNote(),
        this.#newLinesButton(),
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
    const { matches } = this.#filtered;
    const nth = matches.indexOf(this.#current) + 1;
    const position =
      this.#query === ""
        ? ""
        : nth
          ? `${number(nth)} of ${number(matches.length)}`
          : number(matches.length);
    const none = matches.length === 0;
    return h(
      "div",
      { class: "search", role: "search" },
      h("input", {
        id: "log-search",
        class: "input",
        type: "search",
        placeholder: "Search log",
        "aria-label": "Search log",
        value: this.#query,
        oninput: (/** @type {any} */ event) => {
          this.#current = -1;
          this.#updateUrl({ find: event.target.value });
        },
        onkeydown: (/** @type {KeyboardEvent} */ event) => {
          if (event.key === "Enter") this.#goToMatch(event.shiftKey ? -1 : 1);
        },
      }),
      h("output", { class: "soft small", "aria-label": "Matching lines" }, position),
      button("", () => this.#goToMatch(-1), {
        icon: "up",
        slim: true,
        label: "Previous match",
        disabled: none,
      }),
      button("", () => this.#goToMatch(1), {
        icon: "down",
        slim: true,
        label: "Next match",
        disabled: none,
      }),
    );
  }

  #filters() {
    const names = /** @type {LineKind[]} */ (Object.keys(KINDS));
    return h(
      "div",
      { class: "kinds", role: "group", "aria-label": "Event types" },
      names.map((kind) => {
        const shown = !this.#hidden.has(kind);
        const others = [...this.#hidden].filter((other) => other !== kind);
        const hide = shown ? [...others, kind] : others;
        return button(KINDS[kind], () => this.#updateUrl({ hide: hide.join(",") }), {
          slim: true,
          pressed: shown,
        });
      }),
    );
  }

  #buttons() {
    const { follow } = this.scroller;
    const toggle = () => {
      if (follow) this.scroller.follow = false;
      else this.scroller.toEnd();
      this.#followChanged();
    };
    return h(
      "div",
      { class: "ends" },
      button(follow ? "Pause" : "Follow", toggle, { icon: follow ? "pause" : "down", slim: true }),
      button("Download", () => this.#download(), {
        icon: "external",
        slim: true,
        label: "Download log as text",
      }),
    );
  }

  /** Progress of loading a long log. */
  #catchUpNote() {
    const { job, eventStatus } = this.model;
    if (job === null || !this.model.catchingUp) return null;
    return h(
      "p",
      { class: "reading soft small", key: "reading" },
      `Loading ${number(eventStatus.seq)} of ${number(job.seq)} events …`,
    );
  }

  #newLinesButton() {
    const added = this.#filtered.rows.length - this.#rowsAtPause;
    if (this.scroller.follow || added <= 0) return null;
    const follow = () => {
      this.scroller.toEnd();
      this.view.changed();
    };
    return h(
      "div",
      { class: "pill", key: "pill" },
      button(plural(added, "new line"), follow, { icon: "down", slim: true, kind: "main" }),
    );
  }
}
