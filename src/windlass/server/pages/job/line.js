/** How one line of the log looks; and all of them as plain text. */

/** @import { Given } from "../view/dom.js" */
/** @import { Part } from "./ansi.js" */
/** @import { Book, Line } from "./book.js" */

import { moment } from "../format.js";
import { h } from "../view/dom.js";
import { slice } from "./ansi.js";
import { textOfLine } from "./book.js";

const KINDS = /** @type {Record<string, string>} */ ({
  "job-status": "state",
  "step-status": "step",
  "step-progress": "progress",
  "job-completed": "end",
  "job-failed": "end",
  "job-cancelled": "end",
  "cancel-requested": "cancel",
  "process-start": "process",
  "process-end": "process",
  "process-error": "process",
});

const two = (/** @type {number} */ value) => String(value).padStart(2, "0");

/** To the millisecond. @param {number} at */
export function clock(at) {
  const time = new Date(at);
  const seconds = `${two(time.getHours())}:${two(time.getMinutes())}:${two(time.getSeconds())}`;
  return `${seconds}.${String(time.getMilliseconds()).padStart(3, "0")}`;
}

/**
 * @param {Line} line
 * @param {RegExp | null} pattern what is looked for
 * @param {boolean} current whether it is the match that one is at
 * @param {(seq: number) => void} replay
 * @returns {Given}
 */
export const lineView = (line, pattern, current, replay) => [
  h(
    "button",
    {
      type: "button",
      class: "at",
      tabindex: -1,
      title: `${moment(new Date(line.at))}, event ${line.seq}: replay from here`,
      onclick: () => replay(line.seq),
    },
    line.more ? "" : clock(line.at),
  ),
  h("span", { class: "kind", title: line.type }, line.more ? "" : (KINDS[line.type] ?? line.type)),
  h("span", { class: current ? "text current" : "text" }, marked(line, pattern)),
];

/**
 * @param {Line} line
 * @param {RegExp | null} pattern
 * @returns {Given}
 */
function marked(line, pattern) {
  if (pattern === null) return line.parts.map(painted);
  /** @type {Given[]} */
  const found = [];
  let last = 0;
  for (const { index, 0: text } of textOfLine(line).matchAll(pattern)) {
    found.push(slice(line.parts, last, index).map(painted));
    last = index + text.length;
    found.push(h("mark", null, slice(line.parts, index, last).map(painted)));
  }
  return [found, slice(line.parts, last).map(painted)];
}

/** @param {Part} part @returns {Given} */
const painted = ({ text, look }) => (look === "" ? text : h("span", { class: look }, text));

/**
 * @param {Book} book
 * @returns {string}
 */
export function asText(book) {
  const missing = book.dropped > 0 ? [`(${book.dropped} lines before this were let go)`] : [];
  const lines = book.lines.map(
    (line) => `${new Date(line.at).toISOString()} ${line.type} ${textOfLine(line)}`,
  );
  return [...missing, ...lines, ""].join("\n");
}
