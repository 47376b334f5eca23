/** Who did what. */

/** @import { Page } from "../page.js" */
/** @import { Column } from "../view/parts.js" */

import { at } from "../format.js";
import { h } from "../view/dom.js";
import { Older } from "../view/older.js";
import { button, empty, jobLink, table, title } from "../view/parts.js";

/** @typedef {{ at: string, keyId: string | null, name: string, action: string, target: string }} Note */

const ID = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;
const LONG = 300; // characters: an action may name hundreds of jobs

/** @type {Page} */
export function auditPage(view) {
  const begin = () => {
    /** @type {Older<Note>} */
    const found = new Older(view, "/api/audit", ({ notes }) => notes, { limit: 100 });
    void found.more();
    return found;
  };
  let found = begin();
  const again = () => (found = begin());
  view.title("Audit");
  return () => {
    const { rows, busy, cursor, error } = found;
    return [
      title("Audit", button("Look again", again, { icon: "retry", disabled: busy })),
      cursor === undefined
        ? error === null && h("div", { class: "skeleton" })
        : rows.length === 0
          ? empty(
              "Nothing yet",
              "What people and programs change by this server is told here.",
              null,
              "audit",
            )
          : table("Audit", COLUMNS, rows, (_, place) => place),
      found.look(),
    ];
  };
}

/** @type {Column<Note>[]} */
const COLUMNS = [
  { name: "When", class: "nowrap", cell: (one) => h("time", { datetime: one.at }, at(one.at)) },
  {
    name: "Who",
    cell: ({ name, keyId }) =>
      h("span", null, name, " ", keyId && h("code", { class: "faint" }, keyId)),
  },
  { name: "What", cell: (one) => one.action },
  { name: "To what", cell: ({ target }) => (ID.test(target) ? jobLink(target) : words(target)) },
];

/** @param {string} target */
const words = (target) =>
  target.length <= LONG
    ? h("code", null, target)
    : h("code", { title: target.slice(0, 10 * LONG) }, `${target.slice(0, LONG)} …`);
