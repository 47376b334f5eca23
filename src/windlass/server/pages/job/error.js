/** An error with its traceback; frames of libraries are folded, for what matters is one's own. */

/** @import { JobError } from "../client/windlass.js" */
/** @import { Given } from "../view/dom.js" */

import { plural } from "../format.js";
import { h } from "../view/dom.js";
import { copyButton, when } from "../view/parts.js";
import { withoutEnd } from "./book.js";

const FOREIGN =
  /^ *File ".*(?:site-packages|dist-packages|[/\\]lib[/\\]python3|<frozen |[/\\]windlass[/\\](?:worker|process|task|app)\b)/;

/** @param {JobError} error @returns {Given} */
export const errorView = (error) =>
  h(
    "div",
    { class: "error-view", key: "error" },
    h(
      "div",
      { class: "error-head" },
      h(
        "span",
        { class: "mono" },
        [error.type, error.code !== error.type && error.code].filter(Boolean).join(" · "),
      ),
      h(
        "span",
        { class: "soft small" },
        `attempt ${error.attempt}, ${error.errorType.toLowerCase()}`,
        error.at && [" · ", when(error.at)],
      ),
      copyButton(() => error.traceback ?? error.message ?? error.code, "the error"),
    ),
    error.traceback === null
      ? h(
          "p",
          { class: "soft small" },
          "There is no traceback: the error did not come out of the task.",
        )
      : h(
          "div",
          { class: "code traceback mono", tabindex: 0, role: "group", "aria-label": "Traceback" },
          blocks(error.traceback),
        ),
  );

/** @param {string} traceback */
function blocks(traceback) {
  /** @type {{ foreign: boolean, frames: number, lines: string[] }[]} */
  const found = [];
  for (const line of withoutEnd(traceback).split("\n")) {
    const frame = /^ *File "/.test(line);
    const inside = !frame && /^ {4}/.test(line) && found.length > 0;
    const foreign = inside ? found[found.length - 1].foreign : frame && FOREIGN.test(line);
    const last = found.at(-1);
    if (last === undefined || last.foreign !== foreign)
      found.push({ foreign, frames: frame ? 1 : 0, lines: [line] });
    else {
      last.lines.push(line);
      last.frames += frame ? 1 : 0;
    }
  }
  return found.map(({ foreign, frames, lines }) => {
    const text = `${lines.join("\n")}\n`;
    if (!foreign) return h("pre", null, text);
    return h(
      "details",
      null,
      h("summary", { class: "soft" }, plural(frames, "frame"), " of libraries"),
      h("pre", { class: "soft" }, text),
    );
  });
}
