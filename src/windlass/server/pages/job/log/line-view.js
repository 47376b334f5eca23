/** Rendering of log lines. */

/** @import { Renderable } from "../../view/virtual-dom.js" */
/** @import { Part } from "./ansi.js" */
/** @import { Line } from "./log-lines.js" */

import { dateTime, preciseTime } from "../../format.js";
import { h } from "../../view/virtual-dom.js";
import { slice } from "./ansi.js";
import { textOfLine } from "./log-lines.js";

const TYPE_LABELS = /** @type {Record<string, string>} */ ({
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

/**
 * @param {Line} line
 * @param {RegExp | null} pattern of the search
 * @param {boolean} current whether it is the current match
 * @param {(seq: number) => void} replay
 * @returns {Renderable}
 */
export const lineView = (line, pattern, current, replay) => [
  h(
    "button",
    {
      type: "button",
      class: "at",
      tabindex: -1,
      title: `${dateTime(new Date(line.at))}, event ${line.seq}: replay from here`,
      onclick: () => replay(line.seq),
    },
    line.more ? "" : preciseTime(line.at),
  ),
  h(
    "span",
    { class: "kind", title: line.type },
    line.more ? "" : (TYPE_LABELS[line.type] ?? line.type),
  ),
  h("span", { class: current ? "text current" : "text" }, highlighted(line, pattern)),
];

/**
 * @param {Line} line
 * @param {RegExp | null} pattern
 * @returns {Renderable}
 */
function highlighted(line, pattern) {
  if (pattern === null) return line.parts.map(styled);
  /** @type {Renderable[]} */
  const found = [];
  let last = 0;
  for (const { index, 0: text } of textOfLine(line).matchAll(pattern)) {
    found.push(slice(line.parts, last, index).map(styled));
    last = index + text.length;
    found.push(h("mark", null, slice(line.parts, index, last).map(styled)));
  }
  return [found, slice(line.parts, last).map(styled)];
}

/** @param {Part} part @returns {Renderable} */
const styled = ({ text, style }) => (style === "" ? text : h("span", { class: style }, text));
