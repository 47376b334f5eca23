/** One job: where it stands, what it did, what it says, and what can be done about it. */

/** @import { Page, View } from "../page.js" */
/** @import { Job } from "../client/windlass.js" */
/** @import { Given } from "../view/dom.js" */

import { Acts } from "../job/act.js";
import { dataView } from "../job/data.js";
import { errorView } from "../job/error.js";
import { aboutJob, ending, nameRow, progress } from "../job/head.js";
import { clock } from "../job/line.js";
import { Log } from "../job/log.js";
import { JobModel } from "../job/model.js";
import { tabs } from "../job/tabs.js";
import { Timeline } from "../job/timeline.js";
import { WhyNot } from "../job/why.js";
import { go, to } from "../router.js";
import { h } from "../view/dom.js";
import { graph } from "../view/graph.js";
import { badge, card, empty, ended, trouble } from "../view/parts.js";

/** @type {Page} */
export function jobPage(view) {
  view.title("Job");
  const parts = new Parts(view, view.parts[0]);
  view.onMove(() => parts.log.read());
  return () => parts.look();
}

class Parts {
  /** Which is open if the address does not say: that of an error, if it had failed already. */
  #first = "";

  /**
   * @param {View} view
   * @param {string} id
   */
  constructor(view, id) {
    this.view = view;
    this.model = new JobModel(view, id);
    this.acts = new Acts(this.model);
    this.why = new WhyNot(view, this.model.path);
    this.timeline = new Timeline(view, this.model);
    this.log = new Log(view, this.model);
  }

  /** @returns {Given} */
  look() {
    const { job, attempts, error, gone } = this.model;
    if ((job === null || attempts === null) && error === null) return skeleton();
    if (job === null && gone) {
      const text =
        "It may have been deleted, or its time to be kept is over; or it is somebody else's.";
      return empty(
        "There is no such job",
        text,
        h("a", { class: "button", href: to("jobs") }, "All jobs"),
      );
    }
    if (job === null) return trouble(error, () => this.model.ask());
    const now = this.model.now;
    this.view.title(`${now.state === "running" ? `${now.percent} % · ` : ""}${now.task}`);
    this.#first ||= now.state === "failed" ? "error" : "log";
    return h(
      "div",
      { class: "job-page", key: "job" },
      gone &&
        h(
          "p",
          { class: "note state-failed", role: "alert", key: "gone" },
          "This job was deleted. What is here is what it last was.",
        ),
      // That there is no answer at all is told beside the menu.
      error !== null && !gone && error.status > 0 && trouble(error, () => this.model.ask()),
      this.#head(now, gone),
      this.timeline.look(),
      h("div", { class: "columns", key: "columns" }, this.#main(now), this.#side(now)),
      this.#graph(),
    );
  }

  /** @param {Job} job @param {boolean} gone */
  #head(job, gone) {
    const { replay } = this.log;
    return h(
      "header",
      { class: "card head", key: "head" },
      nameRow(job, !gone && this.acts.look(job)),
      h("div", { class: "now" }, replay.on ? this.#then() : this.#now(job)),
    );
  }

  /** @param {Job} job */
  #now(job) {
    const waiting = this.why.look(job);
    const attempted = job.attempt > 0 || ended(job.state);
    return [attempted && progress(this.model.stand, this.model.eta), ending(job), waiting];
  }

  /** As it was at the event that the replay is at. */
  #then() {
    const { stand } = this.log.replay;
    return progress(
      stand,
      null,
      h("span", { class: "then" }, "as it was at ", clock(stand.at), badge(stand.state)),
    );
  }

  /** @param {Job} job */
  #main(job) {
    const failed = job.lastError;
    const every = {
      log: { name: "Log", look: () => this.log.look() },
      error:
        failed === null
          ? null
          : {
              name: job.state === "failed" ? "Error" : "Last error",
              look: () => errorView(failed),
            },
    };
    const chosen = this.view.place.query.get("tab") ?? this.#first;
    return h(
      "section",
      { class: "card main-tabs", key: "main", "aria-label": "Log and error" },
      tabs("main", every, chosen, (name) => this.#choose("tab", name)),
    );
  }

  /** @param {Job} job */
  #side(job) {
    const chosen = this.view.place.query.get("data") ?? "arguments";
    return h(
      "div",
      { class: "side", key: "side" },
      card("Details", aboutJob(job), { key: "about" }),
      dataView(this.model, job, chosen, (name) => this.#choose("data", name)),
    );
  }

  /** @param {string} key @param {string} name */
  #choose(key, name) {
    const query = new URLSearchParams(this.view.place.query);
    query.set(key, name);
    go(to(this.view.place.path, query), { replace: true });
    this.view.draw(); // at once: whoever came by an arrow key wants the focus there
  }

  #graph() {
    const { jobs, capped } = this.model.graph;
    if (jobs.length < 2) return null;
    const beside = h(
      "span",
      { class: "soft small" },
      capped ? `the nearest ${jobs.length} jobs` : `${jobs.length} jobs`,
    );
    return card("Depends on, and depends on it", graph(jobs, { focus: this.model.id }), {
      padded: false,
      key: "graph",
      beside,
    });
  }
}

const skeleton = () =>
  h(
    "div",
    { class: "job-page", key: "skeleton", "aria-busy": "true" },
    h("div", { class: "skeleton head" }),
    h("div", { class: "skeleton" }),
    h("div", { class: "skeleton tall" }),
  );
