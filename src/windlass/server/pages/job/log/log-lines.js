/** Lines of the log, built from events. Open lines may still change. */

/** @import { JobEvent } from "../../client/windlass.js" */
/** @import { Part } from "./ansi.js" */
/** @import { LineKind } from "./event-text.js" */

import { Terminal, lengthOf } from "./ansi.js";
import { kindOf, severityOf, textOf } from "./event-text.js";

const MAX_STREAMS = 64; // open concurrently; tasks choose their names

/**
 * @typedef {object} Line
 * @property {number} n line number from 0, never reused
 * @property {number} seq of its first event
 * @property {number} at
 * @property {string} type
 * @property {LineKind} kind
 * @property {string} severity
 * @property {Part[]} parts
 * @property {boolean} more whether it continues the event of the previous line
 */

export const textOfLine = (/** @type {Line} */ { parts }) =>
  parts.length === 1 ? parts[0].text : parts.map(({ text }) => text).join("");

export class LogLines {
  /** @type {Line[]} */
  lines = [];
  /** Number of lines dropped from the front. */
  dropped = 0;
  /** Characters of the longest line. */
  longest = 0;
  /** @type {Map<string, { terminal: Terminal, open: Line | null }>} */
  #streams = new Map();

  /** @param {JobEvent} event */
  add(event) {
    if (event.type === "output") this.#addOutput(event);
    else this.#addEvent(event);
  }

  /** Number of the first line that may still change. */
  get firstOpen() {
    const open = [...this.#streams.values()].map((stream) => stream.open?.n ?? Infinity);
    return Math.min(this.dropped + this.lines.length, ...open);
  }

  /** Drop lines of earlier events. @param {number} seq */
  dropBefore(seq) {
    let count = 0;
    while (count < this.lines.length && this.lines[count].seq < seq) count += 1;
    this.lines.splice(0, count);
    this.dropped += count;
    for (const stream of this.#streams.values()) {
      // Further output of a dropped line starts a new line.
      if (stream.open !== null && stream.open.n < this.dropped) stream.open = null;
    }
  }

  /** @param {JobEvent} event */
  #addEvent(event) {
    const terminal = new Terminal();
    let more = false;
    const put = (/** @type {Part[]} */ parts) => {
      this.#line(event, parts, more);
      more = true;
    };
    terminal.write(trimNewlines(textOf(event)), put);
    put(terminal.line);
  }

  /** @param {JobEvent} event */
  #addOutput(event) {
    const name = String(event.data.stream ?? "");
    let stream = this.#streams.get(name);
    if (stream === undefined) {
      stream = { terminal: new Terminal(), open: null };
      this.#streams.set(name, stream);
      const [oldest] = this.#streams.keys();
      if (this.#streams.size > MAX_STREAMS) this.#streams.delete(oldest);
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
      kind: kindOf(event),
      severity: severityOf(event),
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
 * Return the log as text, for a download.
 *
 * @param {LogLines} log
 * @returns {string}
 */
export function plainText(log) {
  const missing = log.dropped > 0 ? [`(${log.dropped} earlier lines dropped)`] : [];
  const lines = log.lines.map(
    (line) => `${new Date(line.at).toISOString()} ${line.type} ${textOfLine(line)}`,
  );
  return [...missing, ...lines, ""].join("\n");
}

/**
 * Remove newlines at the end. (A regular expression would take quadratic time.)
 *
 * @param {string} text
 */
export function trimNewlines(text) {
  let end = text.length;
  while (end > 0 && text[end - 1] === "\n") end -= 1;
  return text.slice(0, end);
}
