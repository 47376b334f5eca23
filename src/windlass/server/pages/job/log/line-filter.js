/** Filter and search of log lines, updated incrementally. */

/** @import { Line, LogLines } from "./log-lines.js" */
/** @import { LineKind } from "./event-text.js" */

import { textOfLine } from "./log-lines.js";

export class LineFilter {
  /** @type {Line[]} */
  rows = [];
  /** Numbers of the matching lines, in order. @type {number[]} */
  matches = [];
  /** @type {RegExp | null} */
  pattern = null;
  /** @type {ReadonlySet<LineKind>} */
  #hidden = new Set();
  #query = "";
  /** @type {LogLines | null} */
  #log = null;
  /** Lines before this number are final. */
  #final = 0;

  /**
   * Process new lines only, unless log, filter or search text changed.
   *
   * @param {LogLines} log
   * @param {ReadonlySet<LineKind>} hidden
   * @param {string} query
   */
  update(log, hidden, query) {
    if (log !== this.#log || hidden !== this.#hidden || query !== this.#query) {
      [this.#log, this.#hidden, this.#query] = [log, hidden, query];
      this.pattern = query === "" ? null : new RegExp(query.replace(/[^\w\s]/g, "\\$&"), "gi");
      [this.rows, this.matches, this.#final] = [[], [], 0];
    }
    this.#dropOutdated(log);
    for (const line of log.lines.slice(Math.max(0, this.#final - log.dropped))) {
      if (hidden.has(line.kind)) continue;
      if (hidden.size > 0) this.rows.push(line);
      if (this.pattern !== null && textOfLine(line).search(this.pattern) >= 0)
        this.matches.push(line.n);
    }
    if (hidden.size === 0) this.rows = log.lines;
    this.#final = log.firstOpen;
  }

  /**
   * Remove dropped lines, and lines that may have changed.
   *
   * @param {LogLines} log
   */
  #dropOutdated(log) {
    const kept = (/** @type {number} */ n) => n >= log.dropped && n < this.#final;
    if (this.rows !== log.lines) trim(this.rows, ({ n }) => kept(n));
    trim(this.matches, kept);
  }

  /** Return the row index of a line, or of the next one. @param {number} n */
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
 * Remove items at both ends that are not kept.
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
