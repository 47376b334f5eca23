/** Pager of a list: loads older pages on demand. */

/** @import { Renderable } from "./virtual-dom.js" */
/** @import { PageView } from "../page-view.js" */

import { api } from "../api.js";
import { h } from "./virtual-dom.js";
import { button, errorNote } from "./components.js";

/** @template T */
export class Pager {
  /** All rows loaded so far. @type {T[]} */
  rows = [];
  busy = false;
  /** @type {unknown} */
  error = null;

  /**
   * @param {PageView} view
   * @param {string} path
   * @param {(answer: any) => T[]} rowsOf
   * @param {{ limit: number, cursor?: string }} start without a cursor: at the newest
   */
  constructor(view, path, rowsOf, { limit, cursor }) {
    this.view = view;
    this.path = path;
    this.rowsOf = rowsOf;
    this.limit = limit;
    /** Cursor of the next page; null at the end. @type {string | null | undefined} */
    this.cursor = cursor;
  }

  /** Load the next page. A second click while loading does nothing. */
  async loadMore() {
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

  /** Render the button at the end of the list. @returns {Renderable} */
  render() {
    if (this.error !== null) return errorNote(this.error, () => this.loadMore());
    return this.cursor && olderButton(() => this.loadMore(), this.busy);
  }
}

/** @param {() => unknown} load @param {boolean} [busy] */
export const olderButton = (load, busy = false) =>
  h("div", { class: "title" }, button(busy ? "Loading …" : "Older", load, { disabled: busy }));
