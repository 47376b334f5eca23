/** One flow: its graph with live states, how far it is, and verbs for the whole of it. */

/** @import { Page, View } from "../page.js" */
/** @import { Flow } from "../client/windlass.js" */

import { counted } from "../flow/counts.js";
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
  ended,
  facts,
  jobLink,
  table,
  title,
  trouble,
  when,
} from "../view/parts.js";
import { toast } from "../view/toast.js";

const PERIOD = 1.5; // seconds
const MOST = 200; // jobs that are drawn

/** @type {Page} */
export function flowPage(view) {
  const id = view.parts[0];
  view.title(`Flow ${brief(id)}`);
  const found = new OneFlow(view, id);
  return () => found.draw();
}

class OneFlow {
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
      live.poll(`${this.path}?limit=${MOST}`, PERIOD, (answer, wrong) => {
        this.#flow = answer ?? this.#flow;
        this.#error = wrong;
        view.changed();
      }),
    );
  }

  draw() {
    const flow = this.#flow;
    if (flow === null) {
      if (this.#error === null) return [title("Flow"), h("div", { class: "skeleton" })];
      if (this.#error.status !== 404) return [title("Flow"), trouble(this.#error)];
      return empty(
        "There is no such flow",
        "It may be past keeping, or its jobs are not yours to see.",
        h("a", { class: "button", href: to("flows") }, "All flows"),
        "flows",
      );
    }
    const all = total(flow.counts);
    return [
      title(`Flow ${brief(flow.id)}`, badge(flow.state), this.#verbs(flow)),
      this.#error !== null && trouble(this.#error),
      card(
        "Progress",
        [
          h(
            "div",
            { class: "progress" },
            bar(flow.percent, flow.state),
            h("strong", null, `${flow.percent} %`),
          ),
          facts([
            ["Jobs", `${plural(all, "job")}: ${counted(flow.counts)}`],
            ["Begun", when(flow.createdAt)],
            [flow.endedAt ? "Took" : "For", span(since(flow.createdAt, flow.endedAt ?? undefined))],
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
            `The newest ${flow.jobs.length} of ${plural(all, "job")} are drawn.`,
          ),
        graph(flow.jobs, {}),
      ]),
      table("Jobs", COLUMNS, [...flow.jobs].reverse(), (one) => one.id),
      all > flow.jobs.length &&
        h(
          "p",
          null,
          h("a", { href: to("jobs", { flowId: flow.id }) }, `All ${plural(all, "job")} of it`),
        ),
    ];
  }

  /** @param {Flow} flow */
  #verbs(flow) {
    if (!may("produce")) return null;
    const { counts } = flow;
    const lost = (counts.failed ?? 0) + (counts.canceled ?? 0);
    const busy = total(counts) - lost - (counts.succeeded ?? 0);
    const disabled = this.#busy;
    if (busy > 0) {
      const question = `Cancel ${plural(busy, "job")} of this flow?`;
      return button(
        "Cancel",
        () => this.#act(question, "Cancel them", () => api.cancelFlow(this.id)),
        {
          kind: "danger",
          icon: "cancel",
          disabled,
        },
      );
    }
    if (flow.state === "succeeded") return null;
    const text =
      "What failed or was canceled is done again, with what depends on it; what succeeded stands.";
    return [
      button(
        "Resume",
        () =>
          this.#act(
            "Resume this flow?",
            "Resume",
            () => api.resumeFlow(this.id),
            `${text} Each job goes on after its last step.`,
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
      toast(`That concerned ${plural((await call()).jobs, "job")}.`);
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

/** @type {import("../view/parts.js").Column<FlowJob>[]} */
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
    name: "Waits for",
    number: true,
    cell: (one) => (ended(one.state) || one.waitingFor === 0 ? "–" : plural(one.waitingFor, "job")),
  },
  { name: "Changed", cell: (one) => when(one.updatedAt) },
];
