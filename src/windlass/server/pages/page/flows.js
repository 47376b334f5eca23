/** Flows: jobs that depend on jobs, each seen as one piece of work. */

/** @import { Page } from "../page.js" */
/** @import { Column } from "../view/parts.js" */
/** @import { Flow } from "../client/windlass.js" */

import { counted } from "../flow/counts.js";
import { brief, since, span } from "../format.js";
import { live } from "../live/tab.js";
import { to } from "../router.js";
import { h } from "../view/dom.js";
import { Older, further } from "../view/older.js";
import { badge, bar, empty, table, title, trouble, when } from "../view/parts.js";

/** @typedef {Omit<Flow, "jobs">} Listed */

const PERIOD = 3; // seconds
const PATH = "/api/flows?limit=50";
const NONE = "Jobs that depend on jobs are seen here: chain(a, b), group(…), app.flow().";

/** @type {Page} */
export function flowsPage(view) {
  /** @type {Listed[] | null} */
  let newest = null;
  /** Those that were among the newest, while older ones are shown. @type {Listed[]} */
  let displaced = [];
  /** @type {Older<Listed> | null} */
  let older = null;
  /** @type {string | null} */
  let cursor = null;
  /** @type {unknown} */
  let error = null;
  view.title("Flows");
  view.onClose(
    live.poll(PATH, PERIOD, (answer, wrong) => {
      if (answer !== null) {
        if (older !== null) displaced = others([...(newest ?? []), ...displaced], answer.flows);
        [newest, cursor] = [answer.flows, answer.cursor];
      }
      error = wrong;
      view.changed();
    }),
  );
  const more = (/** @type {string} */ from) => {
    older ??= new Older(view, "/api/flows", ({ flows }) => flows, { limit: 50, cursor: from });
    void older.more();
  };
  return () => {
    const before = [...displaced, ...others(older?.rows ?? [], displaced)];
    const all = [...(newest ?? []), ...others(before, newest ?? [])];
    return [
      title("Flows"),
      error !== null && trouble(error, () => live.refresh("/api/flows")),
      newest === null
        ? error === null && h("div", { class: "skeleton" })
        : all.length > 0
          ? table("Flows", COLUMNS, all, (one) => one.id)
          : empty("There are no flows", NONE, null, "flows"),
      older !== null ? older.look() : cursor && further(() => more(/** @type {string} */ (cursor))),
    ];
  };
}

/** Those that are not among these. @param {Listed[]} flows @param {Listed[]} these */
function others(flows, these) {
  const known = new Set(these.map(({ id }) => id));
  return flows.filter(({ id }) => !known.has(id));
}

/** @type {Column<Listed>[]} */
const COLUMNS = [
  {
    name: "Flow",
    cell: ({ id }) => h("a", { class: "mono", title: id, href: to(`flows/${id}`) }, brief(id)),
  },
  { name: "State", cell: (one) => h("span", null, badge(one.state)) },
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
  { name: "Jobs", cell: (one) => h("span", { class: "small soft" }, counted(one.counts)) },
  { name: "Begun", cell: (one) => when(one.createdAt) },
  {
    name: "Took",
    number: true,
    cell: ({ createdAt, endedAt }) => span(since(createdAt, endedAt ?? undefined)),
  },
];
