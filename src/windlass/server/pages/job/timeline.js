/** The attempts of a job on one axis of time: its stages and steps, and how long it waited. */

/** @import { Given } from "../view/dom.js" */
/** @import { State } from "../client/windlass.js" */
/** @import { View } from "../page.js" */
/** @import { JobModel } from "./model.js" */
/** @import { Piece } from "./axis.js" */
/** @import { Run, Stretch } from "./past.js" */

import { at as clock, number, plural, span } from "../format.js";
import { h } from "../view/dom.js";
import { badge, button, card, ended } from "../view/parts.js";
import { Axis } from "./axis.js";
import { clock as exact } from "./line.js";

const FEW = 8; // attempts, unless all are wanted
const MOST = 200; // a job may snooze for months
const ENDS = /** @type {Record<string, [State, string]>} */ ({
  succeed: ["succeeded", "succeeded"],
  fail: ["failed", "failed"],
  "give-up": ["failed", "crashed, given up"],
  retry: ["retrying", "failed, retried"],
  crash: ["retrying", "crashed"],
  cancel: ["canceled", "canceled"],
  abort: ["canceled", "canceled itself"],
  snooze: ["queued", "snoozed"],
  suspend: ["queued", "suspended"],
  release: ["queued", "given back"],
});

export class Timeline {
  #all = false;
  #told = "";

  /**
   * @param {View} view
   * @param {JobModel} model
   */
  constructor(view, model) {
    this.view = view;
    this.model = model;
  }

  /** @returns {Given} */
  look() {
    const { job, stand, attempts, past } = this.model;
    const runs = past.with(attempts ?? []);
    const shown = runs.slice(this.#all ? -MOST : -FEW);
    const begin =
      shown.length === runs.length ? Date.parse(job?.createdAt ?? "") : (shown[0]?.from ?? 0);
    const over = ended(stand.state);
    const last = runs.at(-1)?.until ?? 0;
    const end = over
      ? Math.max(last, Date.parse(job?.endedAt ?? "") || last, begin)
      : Math.max(Date.now(), begin);
    const axis = new Axis(shown, begin, end);
    return card(
      "Timeline",
      [
        h(
          "ol",
          { class: "runs" },
          shown.map((run) => this.#run(run, axis, end)),
        ),
        this.#after(axis, begin, end, over),
        h(
          "div",
          { class: "time-axis soft" },
          h("span", null, clock(new Date(begin))),
          h("span", { class: "told", role: "status" }, this.#told || span((end - begin) / 1000)),
          h("span", null, over ? clock(new Date(end)) : "now"),
        ),
      ],
      { class: "timeline", key: "timeline", beside: this.#more(runs) },
    );
  }

  /** @param {Run[]} runs */
  #more(runs) {
    if (runs.length <= FEW)
      return runs.length > 1 && h("span", { class: "soft small" }, plural(runs.length, "attempt"));
    const turn = () => {
      this.#all = !this.#all;
      this.view.changed();
    };
    const most =
      runs.length > MOST ? `Last ${MOST} of ${number(runs.length)}` : `All ${runs.length}`;
    return button(this.#all ? `Last ${FEW}` : `${most} attempts`, turn, { slim: true });
  }

  /**
   * The wait that is not over, or never was.
   *
   * @param {Axis} axis
   * @param {number} begin
   * @param {number} end
   * @param {boolean} over
   */
  #after(axis, begin, end, over) {
    const last = axis.pieces.at(-1);
    const never = axis.pieces.every(({ attempt }) => attempt === null);
    if (!never && (over || last === undefined || last.attempt !== null)) return null;
    const wait = last ?? { from: begin, until: end, attempt: null, x: 0, width: 1, cut: false };
    return h(
      "div",
      { class: "run", key: "after" },
      h("div", { class: "who" }, h("strong", null, never && over ? "It never ran" : "Waiting")),
      h("div", { class: "track" }, this.#wait(wait)),
    );
  }

  /**
   * @param {Run} run
   * @param {Axis} axis
   * @param {number} end
   */
  #run(run, axis, end) {
    // A task that stops because somebody asked it to did not cancel itself.
    const asked = run.outcome === "abort" && this.model.job?.cancelRequested;
    const [state, word] =
      ENDS[asked ? "cancel" : (run.outcome ?? "")] ??
      (run.until === null ? ["running", "running"] : ["queued", run.outcome ?? "ended"]);
    const until = run.until ?? end;
    const place = axis.pieces.findIndex(({ attempt }) => attempt === run.number);
    const before = axis.pieces[place - 1];
    const took = span((until - run.from) / 1000);
    const last = run.until === null ? "now" : exact(until);
    const text = `Attempt ${run.number}: ${exact(run.from)} – ${last}, ${took}, ${word}`;
    return h(
      "li",
      { class: `run state-${state}`, key: run.number },
      h(
        "div",
        { class: "who" },
        h("strong", null, `#${run.number}`),
        badge(state, word),
        h("span", { class: "soft nowrap" }, took),
        run.worker !== null &&
          h("span", { class: "soft cut worker", title: run.worker }, run.worker),
      ),
      h(
        "div",
        { class: "track" },
        before?.attempt === null && this.#wait(before),
        this.#bar("whole", axis.x(run.from), axis.x(until), "", text),
        run.stages.map((one, nth) => this.#stretch("stage", one, nth, axis, until)),
        run.steps.map((one, nth) => this.#stretch("step", one, nth, axis, until)),
      ),
      run.error !== null && h("p", { class: "error small cut", title: run.error }, run.error),
    );
  }

  /** @param {Piece} piece */
  #wait({ from, until, x, width, cut }) {
    const length = span((until - from) / 1000);
    const shorter = cut ? " (drawn shorter than it was)" : "";
    const text = `Waited ${exact(from)} – ${exact(until)}, ${length}${shorter}`;
    return this.#bar("wait", x, x + width, width > 0.08 ? length : "", text);
  }

  /**
   * @param {"stage" | "step"} kind
   * @param {Stretch} stretch
   * @param {number} nth
   * @param {Axis} axis
   * @param {number} end
   */
  #stretch(kind, { name, from, until }, nth, axis, end) {
    const last = until ?? end;
    const [left, right] = [axis.x(from), axis.x(last)];
    const open = until === null && last === end ? " so far" : "";
    const took = span((last - from) / 1000) + open;
    const what = kind === "stage" ? "Stage" : "Step";
    const text = `${what} ${name}: ${exact(from)} – ${exact(last)}, ${took}`;
    return this.#bar(
      `${kind} shade-${nth % 3}`,
      left,
      right,
      right - left > 0.06 ? name : "",
      text,
    );
  }

  /**
   * @param {string} kind
   * @param {number} left
   * @param {number} right
   * @param {string} name
   * @param {string} text
   */
  #bar(kind, left, right, name, text) {
    const tell = () => {
      this.#told = text;
      this.view.changed();
    };
    const hush = () => {
      if (this.#told !== text) return;
      this.#told = "";
      this.view.changed();
    };
    return h(
      "span",
      {
        class: `stretch ${kind}`,
        style: { left: `${left * 100}%`, width: `${(right - left) * 100}%` },
        tabindex: 0,
        role: "img",
        "aria-label": text,
        title: text,
        onmouseenter: tell,
        onmouseleave: hush,
        onfocus: tell,
        onblur: hush,
      },
      name,
    );
  }
}
