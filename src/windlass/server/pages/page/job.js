/** Page of one job: status, timeline, log, data, dependencies and actions. */

/** @import { Page, PageView } from "../page-view.js" */
/** @import { Job } from "../client/windlass.js" */
/** @import { Renderable } from "../view/virtual-dom.js" */

import { ActionButtons } from "../job/action-buttons.js";
import { dataTabs } from "../job/detail/data-tabs.js";
import { errorView } from "../job/detail/error.js";
import { jobDetails } from "../job/detail/job-details.js";
import { nameRow, outcomeNote, progress } from "../job/header.js";
import { LogPanel } from "../job/log/log-panel.js";
import { JobModel } from "../job/model.js";
import { tabs } from "../view/tabs.js";
import { Timeline } from "../job/timeline/timeline.js";
import { DiagnosisPanel } from "../job/diagnosis.js";
import { preciseTime } from "../format.js";
import { navigate, pageUrl } from "../navigation.js";
import { h } from "../view/virtual-dom.js";
import { dependencyGraph } from "../view/dependency-graph.js";
import { badge, card, empty, errorNote } from "../view/components.js";
import { ended } from "../job-state.js";

/** @type {Page} */
export function jobPage(view) {
  view.title("Job");
  const screen = new JobScreen(view, view.params[0]);
  view.onQueryChange(() => screen.log.readUrl());
  return () => screen.render();
}

class JobScreen {
  /** Default tab: the error of a failed job, else the log. */
  #defaultTab = "";

  /**
   * @param {PageView} view
   * @param {string} id
   */
  constructor(view, id) {
    this.view = view;
    this.model = new JobModel(view, id);
    this.actionButtons = new ActionButtons(this.model);
    this.diagnosis = new DiagnosisPanel(view, this.model.path);
    this.timeline = new Timeline(view, this.model);
    this.log = new LogPanel(view, this.model);
  }

  /** @returns {Renderable} */
  render() {
    const { job, attempts, error, gone } = this.model;
    if ((job === null || attempts === null) && error === null) return skeleton();
    if (job === null && gone) {
      return empty(
        "Job not found",
        "Deleted, past retention, or no access.",
        h("a", { class: "button", href: pageUrl("jobs") }, "All jobs"),
      );
    }
    if (job === null) return errorNote(error, () => this.model.refresh());
    const now = this.model.now;
    this.view.title(`${now.state === "running" ? `${now.percent} % · ` : ""}${now.task}`);
    this.#defaultTab ||= now.state === "failed" ? "error" : "log";
    return h(
      "div",
      { class: "job-page", key: "job" },
      gone &&
        h(
          "p",
          { class: "note state-failed", role: "alert", key: "gone" },
          "This job was deleted. The page shows its last known state.",
        ),
      // The menu shows a lost connection (status 0).
      error !== null && !gone && error.status > 0 && errorNote(error, () => this.model.refresh()),
      this.#head(now, gone),
      this.timeline.render(),
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
      nameRow(job, !gone && this.actionButtons.render(job)),
      h("div", { class: "job-status" }, replay.on ? this.#replayStatus() : this.#liveStatus(job)),
    );
  }

  /** @param {Job} job */
  #liveStatus(job) {
    const waiting = this.diagnosis.render(job);
    const attempted = job.attempt > 0 || ended(job.state);
    return [attempted && progress(this.model.status, this.model.eta), outcomeNote(job), waiting];
  }

  /** Status at the replay position. */
  #replayStatus() {
    const { status } = this.log.replay;
    return progress(
      status,
      null,
      h("span", { class: "replay-time" }, "at ", preciseTime(status.at), badge(status.state)),
    );
  }

  /** @param {Job} job */
  #main(job) {
    const error = job.lastError;
    const every = {
      log: { name: "Log", render: () => this.log.render() },
      error:
        error === null
          ? null
          : {
              name: job.state === "failed" ? "Error" : "Last error",
              render: () => errorView(error),
            },
    };
    const chosen = this.view.location.query.get("tab") ?? this.#defaultTab;
    return h(
      "section",
      { class: "card main-tabs", key: "main", "aria-label": "Log and error" },
      tabs("main", every, chosen, (name) => this.#choose("tab", name)),
    );
  }

  /** @param {Job} job */
  #side(job) {
    const chosen = this.view.location.query.get("data") ?? "arguments";
    return h(
      "div",
      { class: "side", key: "side" },
      card("Details", jobDetails(job), { key: "details" }),
      dataTabs(this.model, job, chosen, (name) => this.#choose("data", name)),
    );
  }

  /** @param {string} key @param {string} name */
  #choose(key, name) {
    const query = new URLSearchParams(this.view.location.query);
    query.set(key, name);
    navigate(pageUrl(this.view.location.path, query), { replace: true });
    this.view.draw(); // immediately, so that arrow keys can focus the new tab
  }

  #graph() {
    const { jobs, capped } = this.model.graph;
    if (jobs.length < 2) return null;
    const trailing = h(
      "span",
      { class: "soft small" },
      capped ? `the nearest ${jobs.length} jobs` : `${jobs.length} jobs`,
    );
    return card("Dependencies", dependencyGraph(jobs, { focus: this.model.id }), {
      padded: false,
      key: "graph",
      trailing,
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
