/** Timeline of a job: attempts with stages and steps, and waits. */

/** @import { Renderable } from "../../view/virtual-dom.js" */
/** @import { State } from "../../client/windlass.js" */
/** @import { PageView } from "../../page-view.js" */
/** @import { JobModel } from "../model.js" */
/** @import { Piece } from "./axis.js" */
/** @import { Interval, TimelineAttempt } from "./attempt-history.js" */

import { timeText, number, plural, preciseTime, duration } from "../../format.js";
import { h } from "../../view/virtual-dom.js";
import { badge, button, card } from "../../view/components.js";
import { ended } from "../../job-state.js";
import { Axis } from "./axis.js";

const DEFAULT_ATTEMPTS = 8;
const MAX_ATTEMPTS = 200; // a job may snooze for months
const OUTCOMES = /** @type {Record<string, [State, string]>} */ ({
  succeed: ["succeeded", "succeeded"],
  fail: ["failed", "failed"],
  "give-up": ["failed", "crashed, no retries left"],
  retry: ["retrying", "failed, retried"],
  crash: ["retrying", "crashed"],
  cancel: ["canceled", "canceled"],
  abort: ["canceled", "canceled by task"],
  snooze: ["queued", "snoozed"],
  suspend: ["queued", "suspended"],
  release: ["queued", "released"],
});

export class Timeline {
  #all = false;
  #detail = "";

  /**
   * @param {PageView} view
   * @param {JobModel} model
   */
  constructor(view, model) {
    this.view = view;
    this.model = model;
  }

  /** @returns {Renderable} */
  render() {
    const { job, status, attempts: records, history } = this.model;
    const attempts = history.mergedWith(records ?? []);
    const shown = attempts.slice(this.#all ? -MAX_ATTEMPTS : -DEFAULT_ATTEMPTS);
    const start =
      shown.length === attempts.length ? Date.parse(job?.createdAt ?? "") : (shown[0]?.from ?? 0);
    const over = ended(status.state);
    const last = attempts.at(-1)?.until ?? 0;
    const end = over
      ? Math.max(last, Date.parse(job?.endedAt ?? "") || last, start)
      : Math.max(Date.now(), start);
    const axis = new Axis(shown, start, end);
    return card(
      "Timeline",
      [
        h(
          "ol",
          { class: "runs" },
          shown.map((attempt) => this.#attempt(attempt, axis, end)),
        ),
        this.#lastWait(axis, start, end, over),
        h(
          "div",
          { class: "time-axis soft" },
          h("span", null, timeText(new Date(start))),
          h(
            "span",
            { class: "detail", role: "status" },
            this.#detail || duration((end - start) / 1000),
          ),
          h("span", null, over ? timeText(new Date(end)) : "now"),
        ),
      ],
      { class: "timeline", key: "timeline", trailing: this.#more(attempts) },
    );
  }

  /** @param {TimelineAttempt[]} attempts */
  #more(attempts) {
    if (attempts.length <= DEFAULT_ATTEMPTS)
      return (
        attempts.length > 1 &&
        h("span", { class: "soft small" }, plural(attempts.length, "attempt"))
      );
    const toggle = () => {
      this.#all = !this.#all;
      this.view.changed();
    };
    const allText =
      attempts.length > MAX_ATTEMPTS
        ? `Last ${MAX_ATTEMPTS} of ${number(attempts.length)}`
        : `All ${attempts.length}`;
    return button(this.#all ? `Last ${DEFAULT_ATTEMPTS}` : `${allText} attempts`, toggle, {
      slim: true,
    });
  }

  /**
   * Render the current wait, or the wait of a job that never ran.
   *
   * @param {Axis} axis
   * @param {number} start
   * @param {number} end
   * @param {boolean} over
   */
  #lastWait(axis, start, end, over) {
    const last = axis.pieces.at(-1);
    const never = axis.pieces.every(({ attempt }) => attempt === null);
    if (!never && (over || last === undefined || last.attempt !== null)) return null;
    const wait = last ?? {
      from: start,
      until: end,
      attempt: null,
      x: 0,
      width: 1,
      shortened: false,
    };
    return h(
      "div",
      { class: "run", key: "last-wait" },
      h(
        "div",
        { class: "attempt-info" },
        h("strong", null, never && over ? "Never ran" : "Waiting"),
      ),
      h("div", { class: "track" }, this.#wait(wait)),
    );
  }

  /**
   * @param {TimelineAttempt} attempt
   * @param {Axis} axis
   * @param {number} end
   */
  #attempt(attempt, axis, end) {
    // An abort after a cancel request is a cancel.
    const requested = attempt.outcome === "abort" && this.model.job?.cancelRequested;
    const [state, word] =
      OUTCOMES[requested ? "cancel" : (attempt.outcome ?? "")] ??
      (attempt.until === null ? ["running", "running"] : ["queued", attempt.outcome ?? "ended"]);
    const until = attempt.until ?? end;
    const index = axis.pieces.findIndex((piece) => piece.attempt === attempt.number);
    const before = axis.pieces[index - 1];
    const took = duration((until - attempt.from) / 1000);
    const last = attempt.until === null ? "now" : preciseTime(until);
    const text = `Attempt ${attempt.number}: ${preciseTime(attempt.from)} – ${last}, ${took}, ${word}`;
    return h(
      "li",
      { class: `run state-${state}`, key: attempt.number },
      h(
        "div",
        { class: "attempt-info" },
        h("strong", null, `#${attempt.number}`),
        badge(state, word),
        h("span", { class: "soft nowrap" }, took),
        attempt.worker !== null &&
          h("span", { class: "soft cut worker", title: attempt.worker }, attempt.worker),
      ),
      h(
        "div",
        { class: "track" },
        before?.attempt === null && this.#wait(before),
        this.#bar("whole", axis.x(attempt.from), axis.x(until), "", text),
        attempt.stages.map((stage, nth) => this.#interval("stage", stage, nth, axis, until)),
        attempt.steps.map((step, nth) => this.#interval("step", step, nth, axis, until)),
      ),
      attempt.error !== null &&
        h("p", { class: "error small cut", title: attempt.error }, attempt.error),
    );
  }

  /** @param {Piece} piece */
  #wait({ from, until, x, width, shortened }) {
    const length = duration((until - from) / 1000);
    const note = shortened ? " (not to scale)" : "";
    const text = `Waited ${preciseTime(from)} – ${preciseTime(until)}, ${length}${note}`;
    return this.#bar("wait", x, x + width, width > 0.08 ? length : "", text);
  }

  /**
   * @param {"stage" | "step"} kind
   * @param {Interval} interval
   * @param {number} nth
   * @param {Axis} axis
   * @param {number} end
   */
  #interval(kind, { name, from, until }, nth, axis, end) {
    const last = until ?? end;
    const [left, right] = [axis.x(from), axis.x(last)];
    const open = until === null && last === end ? " so far" : "";
    const took = duration((last - from) / 1000) + open;
    const what = kind === "stage" ? "Stage" : "Step";
    const text = `${what} ${name}: ${preciseTime(from)} – ${preciseTime(last)}, ${took}`;
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
    const show = () => {
      this.#detail = text;
      this.view.changed();
    };
    const hide = () => {
      if (this.#detail !== text) return;
      this.#detail = "";
      this.view.changed();
    };
    return h(
      "span",
      {
        class: `interval ${kind}`,
        style: { left: `${left * 100}%`, width: `${(right - left) * 100}%` },
        tabindex: 0,
        role: "img",
        "aria-label": text,
        title: text,
        onmouseenter: show,
        onmouseleave: hide,
        onfocus: show,
        onblur: hide,
      },
      name,
    );
  }
}
