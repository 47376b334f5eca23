/** Why a job is not running: every reason, the weightiest first, and what to do about it. */

/** @import { Job, Why } from "../client/windlass.js" */
/** @import { Given } from "../view/dom.js" */
/** @import { View } from "../page.js" */

import { brief } from "../format.js";
import { live } from "../live/tab.js";
import { h } from "../view/dom.js";
import { ended, jobLink, link, when } from "../view/parts.js";
import { may } from "../session.js";

const PERIOD = 3; // seconds
const ID = /\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b/gi;
const WORKERS = new Set(["no_worker", "deaf", "unknown_task", "busy", "due", "expired"]);
const LINE = new Set(["paused", "behind", "busy", "no_worker"]);

export class WhyNot {
  /** @type {Why | null} */
  #why = null;
  /** @type {import("../client/windlass.js").WindlassError | null} */
  #error = null;
  /** @type {(() => void) | null} */
  #stop = null;

  /**
   * @param {View} view
   * @param {string} path
   */
  constructor(view, path) {
    this.view = view;
    this.path = path;
    view.onClose(() => this.#stop?.());
  }

  /** It asks while the job waits, and then no longer. @param {Job} job */
  #watch(job) {
    const waits = job.state !== "running" && !ended(job.state);
    if (waits && this.#stop === null) {
      this.#stop = live.poll(`${this.path}/why`, PERIOD, (answer, error) => {
        this.#why = answer ?? this.#why;
        this.#error = error;
        this.view.changed();
      });
    } else if (!waits && this.#stop !== null) {
      this.#stop();
      [this.#stop, this.#why] = [null, null];
    }
    return waits;
  }

  /** @param {Job} job @returns {Given} */
  look(job) {
    if (!this.#watch(job)) return null;
    const reasons = this.#why?.state === job.state ? this.#why.reasons : [];
    return h(
      "section",
      { class: `why state-${job.state}`, key: "why", "aria-labelledby": "why" },
      h("h2", { id: "why" }, "Why is it not running?"),
      h(
        "ul",
        null,
        reasons.map((reason) => this.#reason(reason, job)),
      ),
      reasons.length === 0 &&
        h("p", { class: "soft small" }, this.#error === null ? "Looking …" : this.#error.message),
    );
  }

  /** @param {Why["reasons"][number]} reason @param {Job} job */
  #reason({ because, text, at, advice }, job) {
    const leads = [
      LINE.has(because) && link("jobs", `Queue ${job.queue}`, { queue: job.queue }),
      WORKERS.has(because) && may("survey") && link("workers", "Workers"),
    ].filter(Boolean);
    return h(
      "li",
      { key: because },
      h(
        "p",
        null,
        linked(text, job.id),
        at !== null && Date.parse(at) > Date.now() && [" · ", when(at)],
        leads.map((one) => [" · ", one]),
      ),
      advice &&
        h(
          "p",
          { class: "soft small" },
          linked(advice, job.id, (id) => id),
        ),
    );
  }
}

/**
 * With the ids of other jobs in it as links.
 *
 * @param {string} text
 * @param {string} own
 * @param {(id: string) => string} name
 * @returns {Given}
 */
function linked(text, own, name = brief) {
  /** @type {Given[]} */
  const found = [];
  let last = 0;
  for (const { index, 0: id } of text.matchAll(ID)) {
    found.push(text.slice(last, index), id === own ? id : jobLink(id, name(id)));
    last = index + id.length;
  }
  return [found, text.slice(last)];
}
