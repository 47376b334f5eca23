/** List of flows (workflows of dependent jobs). */

/** @import { Page } from "../page-view.js" */
/** @import { Column } from "../view/components.js" */
/** @import { FlowSummary } from "../client/windlass.js" */

import { shortId, secondsSince, duration, stateCountsText } from "../format.js";
import { live } from "../live/live.js";
import { pageUrl } from "../navigation.js";
import { h } from "../view/virtual-dom.js";
import { Pager, olderButton } from "../view/pager.js";
import { badge, bar, empty, errorNote, table, title, when } from "../view/components.js";

const PERIOD = 3; // seconds
const PATH = "/api/flows?limit=50";
const NONE = "Create one with chain(a, b), group(…) or app.flow().";

/** @type {Page} */
export function flowsPage(view) {
  /** @type {FlowSummary[] | null} */
  let newest = null;
  /** Flows pushed off the first page while older ones are shown. @type {FlowSummary[]} */
  let displaced = [];
  /** @type {Pager<FlowSummary> | null} */
  let older = null;
  /** @type {string | null} */
  let cursor = null;
  /** @type {unknown} */
  let error = null;
  view.title("Flows");
  view.onClose(
    live.poll(PATH, PERIOD, (answer, problem) => {
      if (answer !== null) {
        if (older !== null) displaced = without([...(newest ?? []), ...displaced], answer.flows);
        [newest, cursor] = [answer.flows, answer.cursor];
      }
      error = problem;
      view.changed();
    }),
  );
  const loadOlder = (/** @type {string} */ from) => {
    older ??= new Pager(view, "/api/flows", ({ flows }) => flows, { limit: 50, cursor: from });
    void older.loadMore();
  };
  return () => {
    const before = [...displaced, ...without(older?.rows ?? [], displaced)];
    const all = [...(newest ?? []), ...without(before, newest ?? [])];
    return [
      title("Flows"),
      error !== null && errorNote(error, () => live.refresh("/api/flows")),
      newest === null
        ? error === null && h("div", { class: "skeleton" })
        : all.length > 0
          ? table("Flows", COLUMNS, all, (flow) => flow.id)
          : empty("No flows yet", NONE, null, "flows"),
      older !== null
        ? older.render()
        : cursor && olderButton(() => loadOlder(/** @type {string} */ (cursor))),
    ];
  };
}

/** Return flows that are not in `excluded`. @param {FlowSummary[]} flows @param {FlowSummary[]} excluded */
function without(flows, excluded) {
  const known = new Set(excluded.map(({ id }) => id));
  return flows.filter(({ id }) => !known.has(id));
}

/** @type {Column<FlowSummary>[]} */
const COLUMNS = [
  {
    name: "Flow",
    cell: ({ id }) =>
      h("a", { class: "mono", title: id, href: pageUrl(`flows/${id}`) }, shortId(id)),
  },
  { name: "State", cell: (flow) => h("span", null, badge(flow.state)) },
  {
    name: "Progress",
    cell: ({ percent, state }) =>
      h(
        "div",
        { class: "progress" },
        bar(percent, state),
        h("span", { class: "small soft" }, `${percent} %`),
      ),
  },
  {
    name: "Jobs",
    cell: (flow) => h("span", { class: "small soft" }, stateCountsText(flow.counts)),
  },
  { name: "Started", cell: (flow) => when(flow.createdAt) },
  {
    name: "Duration",
    number: true,
    cell: ({ createdAt, endedAt }) => duration(secondsSince(createdAt, endedAt ?? undefined)),
  },
];
