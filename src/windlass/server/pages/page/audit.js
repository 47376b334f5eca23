/** Audit log of changes. */

/** @import { AuditEntry } from "../client/windlass.js" */
/** @import { Page } from "../page-view.js" */
/** @import { Column } from "../view/components.js" */

import { timeText } from "../format.js";
import { h } from "../view/virtual-dom.js";
import { Pager } from "../view/pager.js";
import { button, empty, jobLink, table, title } from "../view/components.js";

const ID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;
const MAX_LENGTH = 300; // characters: an action may name hundreds of jobs

/** @type {Page} */
export function auditPage(view) {
  const load = () => {
    /** @type {Pager<AuditEntry>} */
    const pager = new Pager(view, "/api/audit", ({ entries }) => entries, { limit: 100 });
    void pager.loadMore();
    return pager;
  };
  let pager = load();
  const refresh = () => (pager = load());
  view.title("Audit");
  return () => {
    const { rows, busy, cursor, error } = pager;
    return [
      title("Audit", button("Refresh", refresh, { icon: "retry", disabled: busy })),
      cursor === undefined
        ? error === null && h("div", { class: "skeleton" })
        : rows.length === 0
          ? empty("No entries yet", "Changes made through this server appear here.", null, "audit")
          : table("Audit", COLUMNS, rows, (_, index) => index),
      pager.render(),
    ];
  };
}

/** @type {Column<AuditEntry>[]} */
const COLUMNS = [
  {
    name: "Time",
    class: "nowrap",
    cell: (entry) => h("time", { datetime: entry.at }, timeText(entry.at)),
  },
  {
    name: "User",
    cell: ({ name, keyId }) =>
      h("span", null, name, " ", keyId && h("code", { class: "faint" }, keyId)),
  },
  { name: "Action", cell: (entry) => entry.action },
  {
    name: "Target",
    cell: ({ target }) => (ID.test(target) ? jobLink(target) : targetText(target)),
  },
];

/** @param {string} target */
const targetText = (target) =>
  target.length <= MAX_LENGTH
    ? h("code", null, target)
    : h("code", { title: target.slice(0, 10 * MAX_LENGTH) }, `${target.slice(0, MAX_LENGTH)} …`);
