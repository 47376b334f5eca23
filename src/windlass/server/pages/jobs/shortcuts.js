/** Keyboard shortcuts of the job list. */

import { confirm } from "../view/dialog.js";
import { h } from "../view/virtual-dom.js";

/**
 * @typedef {object} Commands
 * @property {(by: number) => void} move
 * @property {(range: boolean) => void} select
 * @property {() => void} open
 * @property {() => void} search
 * @property {() => void} showNew
 * @property {() => void} escape
 */

/** @type {[string[], string][]} */
const HELP = [
  [["j", "↓"], "next job"],
  [["k", "↑"], "previous job"],
  [["Enter"], "open job"],
  [["x"], "select job"],
  [["Shift", "x"], "select range"],
  [["n"], "show new jobs"],
  [["/"], "search"],
  [["Esc"], "clear selection"],
  [["?"], "show shortcuts"],
];

export const help = () =>
  confirm({
    title: "Keyboard shortcuts",
    text: h(
      "dl",
      { class: "key-list" },
      HELP.map(([keys, what]) => [
        h("dt", null, keys.map((key) => [h("kbd", null, key), " "])),
        h("dd", null, what),
      ]),
    ),
    action: null,
  });

/**
 * @param {Commands} commands
 * @returns {() => void} removes the listener
 */
export function listen(commands) {
  const handle = (/** @type {KeyboardEvent} */ event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (document.querySelector("dialog[open]") !== null) return;
    const target = /** @type {HTMLElement} */ (event.target);
    if (event.key === "Escape" && target.matches?.("input, select")) target.blur();
    else if (target.matches?.("input:not([type=checkbox]), select, textarea")) return;
    else if (!press(event, target, commands)) return;
    event.preventDefault();
  };
  document.addEventListener("keydown", handle);
  return () => document.removeEventListener("keydown", handle);
}

/**
 * Run the command of a key. Returns false if it has none. Arrow keys work only within the list:
 * elsewhere they scroll.
 *
 * @param {KeyboardEvent} event
 * @param {HTMLElement} target
 * @param {Commands} commands
 */
function press({ key, shiftKey }, target, commands) {
  const inside = target.closest?.("tr.job") !== null;
  if (key === "j" || (inside && key === "ArrowDown")) commands.move(1);
  else if (key === "k" || (inside && key === "ArrowUp")) commands.move(-1);
  else if (key === "x" || key === "X") commands.select(shiftKey);
  else if (key === "Enter" && inside && !target.matches("a, button")) commands.open();
  else if (key === "/") commands.search();
  else if (key === "n") commands.showNew();
  else if (key === "?") void help();
  else if (key === "Escape") commands.escape();
  else return false;
  return true;
}
