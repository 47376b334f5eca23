/** Error with its traceback; library frames are collapsed. */

/** @import { JobError } from "../../client/windlass.js" */
/** @import { Renderable } from "../../view/virtual-dom.js" */

import { plural } from "../../format.js";
import { h } from "../../view/virtual-dom.js";
import { copyButton, when } from "../../view/components.js";
import { trimNewlines } from "../log/log-lines.js";

const LIBRARY =
  /^ *File ".*(?:site-packages|dist-packages|[/\\]lib[/\\]python3|<frozen |[/\\]windlass[/\\](?:worker|process|task|app)\b)/;

/** @param {JobError} error @returns {Renderable} */
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
      ? h("p", { class: "soft small" }, "No traceback: the error was not raised by the task.")
      : h(
          "div",
          { class: "code traceback mono", tabindex: 0, role: "group", "aria-label": "Traceback" },
          tracebackBlocks(error.traceback),
        ),
  );

/** @param {string} traceback */
function tracebackBlocks(traceback) {
  /** @type {{ library: boolean, frames: number, lines: string[] }[]} */
  const found = [];
  for (const line of trimNewlines(traceback).split("\n")) {
    const frame = /^ *File "/.test(line);
    const inside = !frame && /^ {4}/.test(line) && found.length > 0;
    const library = inside ? found[found.length - 1].library : frame && LIBRARY.test(line);
    const last = found.at(-1);
    if (last === undefined || last.library !== library)
      found.push({ library, frames: frame ? 1 : 0, lines: [line] });
    else {
      last.lines.push(line);
      last.frames += frame ? 1 : 0;
    }
  }
  return found.map(({ library, frames, lines }) => {
    const text = `${lines.join("\n")}\n`;
    if (!library) return h("pre", null, text);
    return h(
      "details",
      null,
      h("summary", { class: "soft" }, plural(frames, "library frame")),
      h("pre", { class: "soft" }, text),
    );
  });
}
