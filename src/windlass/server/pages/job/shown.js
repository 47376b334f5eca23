/** Which lines of a book are shown, and which of them have what is looked for. */

/** @import { Book, Line } from "./book.js" */
/** @import { Sort } from "./saying.js" */

import { textOfLine } from "./book.js";

export class Shown {
  /** @type {Line[]} */
  rows = [];
  /** The numbers of the lines that match, in order. @type {number[]} */
  matches = [];
  /** @type {RegExp | null} */
  pattern = null;
  /** @type {ReadonlySet<Sort>} */
  #hidden = new Set();
  #query = "";
  /** @type {Book | null} */
  #book = null;
  #sure = 0;

  /**
   * Only what is new is looked at, unless something else is wanted than before.
   *
   * @param {Book} book
   * @param {ReadonlySet<Sort>} hidden
   * @param {string} query
   */
  update(book, hidden, query) {
    if (book !== this.#book || hidden !== this.#hidden || query !== this.#query) {
      [this.#book, this.#hidden, this.#query] = [book, hidden, query];
      this.pattern = query === "" ? null : new RegExp(query.replace(/[^\w\s]/g, "\\$&"), "gi");
      [this.rows, this.matches, this.#sure] = [[], [], 0];
    }
    this.#forget(book);
    for (const line of book.lines.slice(Math.max(0, this.#sure - book.dropped))) {
      if (hidden.has(line.sort)) continue;
      if (hidden.size > 0) this.rows.push(line);
      if (this.pattern !== null && textOfLine(line).search(this.pattern) >= 0)
        this.matches.push(line.n);
    }
    if (hidden.size === 0) this.rows = book.lines;
    this.#sure = book.settled;
  }

  /**
   * Lines that may have changed are looked at again; those that are gone leave.
   *
   * @param {Book} book
   */
  #forget(book) {
    const kept = (/** @type {number} */ n) => n >= book.dropped && n < this.#sure;
    if (this.rows !== book.lines) trim(this.rows, ({ n }) => kept(n));
    trim(this.matches, kept);
  }

  /** Where in the rows a line is, or the first after it. @param {number} n */
  rowOf(n) {
    let [low, high] = [0, this.rows.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.rows[middle].n < n) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

/**
 * Takes off both ends what does not belong to the list any more.
 *
 * @template T
 * @param {T[]} list
 * @param {(one: T) => boolean} kept
 */
function trim(list, kept) {
  while (list.length > 0 && !kept(list[list.length - 1])) list.pop();
  const first = list.findIndex(kept);
  if (first > 0) list.splice(0, first);
}
