/** One flow: progress, graph with live states, actions on the whole flow. */

/** @import { Page, PageView } from "../page-view.js" */
/** @import { Flow, JobNode } from "../client/windlass.js" */

import { api } from "../api.js";
import { shortId, plural, secondsSince, duration, stateCountsText } from "../format.js";
import { live } from "../live/live.js";
import { pageUrl } from "../navigation.js";
import { may } from "../session.js";
import { confirm } from "../view/dialog.js";
import { h } from "../view/virtual-dom.js";
import { dependencyGraph } from "../view/dependency-graph.js";
import {
  badge,
  bar,
  button,
  card,
  copyButton,
  empty,
  errorNote,
  fieldList,
  jobLink,
  table,
  title,
  when,
} from "../view/components.js";
import { ended } from "../job-state.js";
import { toast } from "../view/toast.js";

const PERIOD = 1.5; // seconds
const MAX_JOBS = 200; // in the graph

/** @type {Page} */
export function flowPage(view) {
  const id = view.params[0];
  view.title(`Flow ${shortId(id)}`);
  const details = new FlowDetails(view, id);
  return () => details.render();
}

class FlowDetails {
  /** @type {Flow | null} */
  #flow = null;
  /** @type {any} */
  #error = null;
  #busy = false;

  /** @param {PageView} view @param {string} id */
  constructor(view, id) {
    this.view = view;
    this.id = id;
    this.path = `/api/flows/${encodeURIComponent(id)}`;
    view.onClose(
      live.poll(`${this.path}?limit=${MAX_JOBS}`, PERIOD, (answer, problem) => {
        this.#flow = answer ?? this.#flow;
        this.#error = problem;
        view.changed();
      }),
    );
  }

  render() {
    const flow = this.#flow;
    if (flow === null) {
      if (this.#error === null) return [title("Flow"), h("div", { class: "skeleton" })];
      if (this.#error.status !== 404) return [title("Flow"), errorNote(this.#error)];
      return empty(
        "Flow not found",
        "Deleted, past retention, or no access.",
        h("a", { class: "button", href: pageUrl("flows") }, "All flows"),
        "flows",
      );
    }
    const all = total(flow.counts);
    return [
      title(`Flow ${shortId(flow.id)}`, badge(flow.state), this.#actions(flow)),
      this.#error !== null && errorNote(this.#error),
      card(
        "Progress",
        [
          h(
            "div",
            { class: "progress" },
            bar(flow.percent, flow.state),
            h("strong", null, `${flow.percent} %`),
          ),
          fieldList([
            ["Jobs", `${plural(all, "job")}: ${stateCountsText(flow.counts)}`],
            ["Started", when(flow.createdAt)],
            [
              flow.endedAt ? "Duration" : "Running for",
              duration(secondsSince(flow.createdAt, flow.endedAt ?? undefined)),
            ],
            [
              "Id",
              h(
                "span",
                null,
                h("code", null, flow.id),
                " ",
                copyButton(() => flow.id, "the id"),
              ),
            ],
          ]),
        ],
        { class: "flow-head" },
      ),
      card("Graph", [
        all > flow.jobs.length &&
          h(
            "p",
            { class: "soft small" },
            `Showing the newest ${flow.jobs.length} of ${plural(all, "job")}.`,
          ),
        dependencyGraph(flow.jobs, {}),
      ]),
      table("Jobs", COLUMNS, [...flow.jobs].reverse(), (job) => job.id),
      all > flow.jobs.length &&
        h(
          "p",
          null,
          h("a", { href: pageUrl("jobs", { flowId: flow.id }) }, `View all ${plural(all, "job")}`),
        ),
    ];
  }

  /** @param {Flow} flow */
  #actions(flow) {
    if (!may("produce")) return null;
    const { counts } = flow;
    const unsuccessful = (counts.failed ?? 0) + (counts.canceled ?? 0);
    const active = total(counts) - unsuccessful - (counts.succeeded ?? 0);
    const disabled = this.#busy;
    if (active > 0) {
      const question = `Cancel ${plural(active, "job")} of this flow?`;
      return button(
        "Cancel",
        () => this.#act(question, "Cancel jobs", "Canceled", () => api.cancelFlow(this.id)),
        {
          kind: "danger",
          icon: "cancel",
          disabled,
        },
      );
    }
    if (flow.state === "succeeded") return null;
    const text =
      "Failed and canceled jobs run again, with the jobs that depend on them. Succeeded jobs are not run again.";
    return [
      button(
        "Resume",
        () =>
          this.#act(
            "Resume this flow?",
            "Resume",
            "Resumed",
            () => api.resumeFlow(this.id),
            `${text} Each job continues after its last completed step.`,
          ),
        {
          icon: "resume",
          disabled,
        },
      ),
      button(
        "Retry",
        () => this.#act("Retry this flow?", "Retry", "Retried", () => api.retryFlow(this.id), text),
        {
          icon: "retry",
          disabled,
        },
      ),
    ];
  }

  /**
   * @param {string} question
   * @param {string} action label of the confirm button
   * @param {string} done past tense of the action
   * @param {() => Promise<{ jobs: number }>} call
   * @param {string} [text]
   */
  async #act(question, action, done, call, text) {
    const danger = done === "Canceled";
    if (this.#busy || !(await confirm({ title: question, text, action, danger }))) return;
    this.#busy = true;
    this.view.changed();
    try {
      toast(`${done} ${plural((await call()).jobs, "job")}.`);
    } catch (error) {
      toast(/** @type {Error} */ (error).message, "failed");
    }
    this.#busy = false;
    live.refresh(this.path);
  }
}

/** @param {Flow["counts"]} counts */
const total = (counts) => Object.values(counts).reduce((sum, count) => sum + count, 0);

/** @type {import("../view/components.js").Column<JobNode>[]} */
const COLUMNS = [
  { name: "State", cell: (job) => h("span", null, badge(job.state)) },
  {
    name: "Job",
    cell: (job) =>
      h("span", null, h("a", { href: pageUrl(`jobs/${job.id}`) }, job.task), " ", jobLink(job.id)),
  },
  { name: "Queue", cell: (job) => job.queue },
  {
    name: "Progress",
    cell: (job) =>
      h(
        "div",
        { class: "progress" },
        bar(job.percent, job.state),
        h("span", { class: "small soft" }, `${job.percent} %`),
      ),
  },
  {
    name: "Waiting for",
    number: true,
    cell: (job) => (ended(job.state) || job.waitingFor === 0 ? "–" : plural(job.waitingFor, "job")),
  },
  { name: "Updated", cell: (job) => when(job.updatedAt) },
];
