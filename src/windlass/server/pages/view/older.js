/**
 * A list from the newest to the oldest, a page of it at a time, as far as somebody wants to see.
 */

/** @import { Given } from "./dom.js" */
/** @import { View } from "../page.js" */

import { api } from "../session.js";
import { h } from "./dom.js";
import { button, trouble } from "./parts.js";

/** @template T */
export class Older {
  /** What was found so far. @type {T[]} */
  rows = [];
  busy = false;
  /** @type {unknown} */
  error = null;

  /**
   * @param {View} view
   * @param {string} path
   * @param {(answer: any) => T[]} rowsOf
   * @param {{ limit: number, cursor?: string }} begin without a cursor, with the newest
   */
  constructor(view, path, rowsOf, { limit, cursor }) {
    this.view = view;
    this.path = path;
    this.rowsOf = rowsOf;
    this.limit = limit;
    /** Leads on; null is the end. @type {string | null | undefined} */
    this.cursor = cursor;
  }

  /** The next page; whoever clicks twice wants one. */
  async more() {
    if (this.busy) return;
    this.busy = true;
    this.view.changed();
    try {
      const query = { limit: this.limit, cursor: this.cursor };
      const answer = await api.request("GET", this.path, { query });
      this.rows = [...this.rows, ...this.rowsOf(answer)];
      this.cursor = answer.cursor;
      this.error = null;
    } catch (error) {
      this.error = error;
    }
    this.busy = false;
    this.view.changed();
  }

  /** A way on, at the end of the list. @returns {Given} */
  look() {
    if (this.error !== null) return trouble(this.error, () => this.more());
    return this.cursor && further(() => this.more(), this.busy);
  }
}

/** @param {() => unknown} more @param {boolean} [busy] */
export const further = (more, busy = false) =>
  h("div", { class: "title" }, button(busy ? "Loading …" : "Older", more, { disabled: busy }));
