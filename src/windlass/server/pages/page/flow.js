/** One flow: progress, graph with live states, actions on the whole flow. */

/** @import { Page, View } from "../page-view.js" */
/** @import { Flow } from "../client/windlass.js" */

import { countsText } from "../flow/counts.js";
import { brief, plural, since, span } from "../format.js";
import { live } from "../live/tab.js";
import { to } from "../router.js";
import { api, may } from "../session.js";
import { confirm } from "../view/dialog.js";
import { h } from "../view/dom.js";
import { graph } from "../view/graph.js";
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
  view.title(`Flow ${brief(id)}`);
  const details = new FlowDetails(view, id);
  return () => details.render();
}

class FlowDetails {
  /** @type {Flow | null} */
  #flow = null;
  /** @type {any} */
  #error = null;
  #busy = false;

  /** @param {View} view @param {string} id */
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
        h("a", { class: "button", href: to("flows") }, "All flows"),
        "flows",
      );
    }
    const all = total(flow.counts);
    return [
      title(`Flow ${brief(flow.id)}`, badge(flow.state), this.#actions(flow)),
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
            ["Jobs", `${plural(all, "job")}: ${countsText(flow.counts)}`],
            ["Started", when(flow.createdAt)],
            [
              flow.endedAt ? "Duration" : "Running for",
              span(since(flow.createdAt, flow.endedAt ?? undefined)),
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
        graph(flow.jobs, {}),
      ]),
      table("Jobs", COLUMNS, [...flow.jobs].reverse(), (one) => one.id),
      all > flow.jobs.length &&
        h(
          "p",
          null,
          h("a", { href: to("jobs", { flowId: flow.id }) }, `View all ${plural(all, "job")}`),
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
        () => this.#act(question, "Cancel jobs", () => api.cancelFlow(this.id)),
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
        () => this.#act("Retry this flow?", "Retry", () => api.retryFlow(this.id), text),
        {
          icon: "retry",
          disabled,
        },
      ),
    ];
  }

  /**
   * @param {string} question
   * @param {string} action
   * @param {() => Promise<{ jobs: number }>} call
   * @param {string} [text]
   */
  async #act(question, action, call, text) {
    const danger = action.startsWith("Cancel");
    if (this.#busy || !(await confirm({ title: question, text, action, danger }))) return;
    this.#busy = true;
    this.view.changed();
    try {
      toast(`${action}: ${plural((await call()).jobs, "job")}.`);
    } catch (error) {
      toast(/** @type {Error} */ (error).message, "failed");
    }
    this.#busy = false;
    live.refresh(this.path);
  }
}

/** @param {Flow["counts"]} counts */
const total = (counts) => Object.values(counts).reduce((sum, one) => sum + one, 0);

/** @typedef {Flow["jobs"][number]} FlowJob */

/** @type {import("../view/components.js").Column<FlowJob>[]} */
const COLUMNS = [
  { name: "State", cell: (one) => h("span", null, badge(one.state)) },
  {
    name: "Job",
    cell: (one) =>
      h("span", null, h("a", { href: to(`jobs/${one.id}`) }, one.task), " ", jobLink(one.id)),
  },
  { name: "Queue", cell: (one) => one.queue },
  {
    name: "Progress",
    cell: (one) =>
      h(
        "div",
        { class: "progress" },
        bar(one.percent, one.state),
        h("span", { class: "small soft" }, `${one.percent} %`),
      ),
  },
  {
    name: "Waiting for",
    number: true,
    cell: (one) => (ended(one.state) || one.waitingFor === 0 ? "–" : plural(one.waitingFor, "job")),
  },
  { name: "Updated", cell: (one) => when(one.updatedAt) },
];
