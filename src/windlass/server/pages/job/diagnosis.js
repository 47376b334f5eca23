/** Reasons why a job is not running, most important first, with advice. */

/** @import { Diagnosis, Job } from "../client/windlass.js" */
/** @import { Renderable } from "../view/virtual-dom.js" */
/** @import { PageView } from "../page-view.js" */

import { shortId } from "../format.js";
import { live } from "../live/live.js";
import { h } from "../view/virtual-dom.js";
import { jobLink, link, when } from "../view/components.js";
import { ended } from "../job-state.js";
import { may } from "../session.js";

const PERIOD = 3; // seconds
const ID = /\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b/gi;
const WORKERS = new Set(["no_worker", "unresponsive", "unknown_task", "busy", "due", "expired"]);
const QUEUE = new Set(["paused", "behind", "busy", "no_worker"]);

export class DiagnosisPanel {
  /** @type {Diagnosis | null} */
  #diagnosis = null;
  /** @type {import("../client/windlass.js").WindlassError | null} */
  #error = null;
  /** @type {(() => void) | null} */
  #stop = null;

  /**
   * @param {PageView} view
   * @param {string} path
   */
  constructor(view, path) {
    this.view = view;
    this.path = path;
    view.onClose(() => this.#stop?.());
  }

  /** Poll while the job waits. @param {Job} job */
  #poll(job) {
    const waiting = job.state !== "running" && !ended(job.state);
    if (waiting && this.#stop === null) {
      this.#stop = live.poll(`${this.path}/why`, PERIOD, (answer, error) => {
        this.#diagnosis = answer ?? this.#diagnosis;
        this.#error = error;
        this.view.changed();
      });
    } else if (!waiting && this.#stop !== null) {
      this.#stop();
      [this.#stop, this.#diagnosis] = [null, null];
    }
    return waiting;
  }

  /** @param {Job} job @returns {Renderable} */
  render(job) {
    if (!this.#poll(job)) return null;
    const reasons = this.#diagnosis?.state === job.state ? this.#diagnosis.reasons : [];
    return h(
      "section",
      { class: `why state-${job.state}`, key: "why", "aria-labelledby": "why" },
      h("h2", { id: "why" }, "Why is this job not running?"),
      h(
        "ul",
        null,
        reasons.map((reason) => this.#reason(reason, job)),
      ),
      reasons.length === 0 &&
        h("p", { class: "soft small" }, this.#error === null ? "Checking …" : this.#error.message),
    );
  }

  /** @param {Diagnosis["reasons"][number]} reason @param {Job} job */
  #reason({ code, text, at, advice }, job) {
    const links = [
      QUEUE.has(code) && link("jobs", `Queue ${job.queue}`, { queue: job.queue }),
      WORKERS.has(code) && may("monitor") && link("workers", "Workers"),
    ].filter(Boolean);
    return h(
      "li",
      { key: code },
      h(
        "p",
        null,
        withJobLinks(text, job.id),
        at !== null && Date.parse(at) > Date.now() && [" · ", when(at)],
        links.map((element) => [" · ", element]),
      ),
      advice &&
        h(
          "p",
          { class: "soft small" },
          withJobLinks(advice, job.id, (id) => id),
        ),
    );
  }
}

/**
 * Render a text with job ids as links.
 *
 * @param {string} text
 * @param {string} own
 * @param {(id: string) => string} name
 * @returns {Renderable}
 */
function withJobLinks(text, own, name = shortId) {
  /** @type {Renderable[]} */
  const found = [];
  let last = 0;
  for (const { index, 0: id } of text.matchAll(ID)) {
    found.push(text.slice(last, index), id === own ? id : jobLink(id, name(id)));
    last = index + id.length;
  }
  return [found, text.slice(last)];
}
