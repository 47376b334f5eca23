/** The lines that events have written so far. A line that is still open may yet change. */

/** @import { JobEvent } from "../client/windlass.js" */
/** @import { Part } from "./ansi.js" */
/** @import { Sort } from "./saying.js" */

import { Terminal, lengthOf } from "./ansi.js";
import { sortOf, textOf, weightOf } from "./saying.js";

const MOST_STREAMS = 64; // that are written to in turns; a task gives them any names

/**
 * @typedef {object} Line
 * @property {number} n counts the lines from 0, for ever
 * @property {number} seq the event that began it
 * @property {number} at
 * @property {string} type
 * @property {Sort} sort
 * @property {string} weight
 * @property {Part[]} parts
 * @property {boolean} more whether it goes on with the event of the line before
 */

export const textOfLine = (/** @type {Line} */ { parts }) =>
  parts.length === 1 ? parts[0].text : parts.map(({ text }) => text).join("");

export class Book {
  /** @type {Line[]} */
  lines = [];
  /** How many lines were dropped from the front. */
  dropped = 0;
  /** Characters of the longest line. */
  longest = 0;
  /** @type {Map<string, { terminal: Terminal, open: Line | null }>} */
  #streams = new Map();

  /** @param {JobEvent} event */
  add(event) {
    if (event.type === "output") this.#output(event);
    else this.#said(event);
  }

  /** Lines from this one on may yet change. */
  get settled() {
    const open = [...this.#streams.values()].map((one) => one.open?.n ?? Infinity);
    return Math.min(this.dropped + this.lines.length, ...open);
  }

  /** Forget lines until those of this event. @param {number} seq */
  dropBefore(seq) {
    let count = 0;
    while (count < this.lines.length && this.lines[count].seq < seq) count += 1;
    this.lines.splice(0, count);
    this.dropped += count;
    for (const stream of this.#streams.values()) {
      // What comes next to a line that is gone is seen on a new one.
      if (stream.open !== null && stream.open.n < this.dropped) stream.open = null;
    }
  }

  /** @param {JobEvent} event */
  #said(event) {
    const terminal = new Terminal();
    let more = false;
    const put = (/** @type {Part[]} */ parts) => {
      this.#line(event, parts, more);
      more = true;
    };
    terminal.write(withoutEnd(textOf(event)), put);
    put(terminal.line);
  }

  /** @param {JobEvent} event */
  #output(event) {
    const name = String(event.data.stream ?? "");
    let stream = this.#streams.get(name);
    if (stream === undefined) {
      stream = { terminal: new Terminal(), open: null };
      this.#streams.set(name, stream);
      const [oldest] = this.#streams.keys();
      if (this.#streams.size > MOST_STREAMS) this.#streams.delete(oldest);
    }
    const { terminal } = stream;
    let { open } = stream;
    let more = false;
    const put = (/** @type {Part[]} */ parts) => {
      if (open === null) this.#line(event, parts, more);
      else this.#rewrite(open, parts);
      open = null;
      more = true;
    };
    terminal.write(textOf(event), put);
    if (open !== null) this.#rewrite(open, terminal.line);
    else if (terminal.line.length > 0) open = this.#line(event, terminal.line, more);
    stream.open = open;
  }

  /**
   * @param {JobEvent} event
   * @param {Part[]} parts
   * @param {boolean} more
   */
  #line(event, parts, more) {
    /** @type {Line} */
    const line = {
      n: this.dropped + this.lines.length,
      seq: event.seq,
      at: event.at.getTime(),
      type: event.type,
      sort: sortOf(event),
      weight: weightOf(event),
      parts,
      more,
    };
    this.lines.push(line);
    this.longest = Math.max(this.longest, lengthOf(parts));
    return line;
  }

  /**
   * @param {Line} line
   * @param {Part[]} parts
   */
  #rewrite(line, parts) {
    line.parts = parts;
    this.longest = Math.max(this.longest, lengthOf(parts));
  }
}

/**
 * Without the newlines at its end. (A pattern for them looks at every run from every place in it.)
 *
 * @param {string} text
 */
export function withoutEnd(text) {
  let end = text.length;
  while (end > 0 && text[end - 1] === "\n") end -= 1;
  return text.slice(0, end);
}
