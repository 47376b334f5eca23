/** The keys of the list. */

import { confirm } from "../view/dialog.js";
import { h } from "../view/dom.js";

/**
 * @typedef {object} Moves
 * @property {(by: number) => void} move
 * @property {(range: boolean) => void} select
 * @property {() => void} open
 * @property {() => void} search
 * @property {() => void} show
 * @property {() => void} leave
 */

/** @type {[string[], string][]} */
const HELP = [
  [["j", "↓"], "next job"],
  [["k", "↑"], "job before"],
  [["Enter"], "open it"],
  [["x"], "select it"],
  [["Shift", "x"], "select all up to it"],
  [["n"], "show new jobs"],
  [["/"], "search"],
  [["Esc"], "clear the selection, leave the list"],
  [["?"], "these keys"],
];

export const help = () =>
  confirm({
    title: "Keys",
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
 * @param {Moves} moves
 * @returns {() => void} ends it
 */
export function listen(moves) {
  const hear = (/** @type {KeyboardEvent} */ event) => {
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (document.querySelector("dialog[open]") !== null) return;
    const target = /** @type {HTMLElement} */ (event.target);
    if (event.key === "Escape" && target.matches?.("input, select")) target.blur();
    else if (target.matches?.("input:not([type=checkbox]), select, textarea")) return;
    else if (!press(event, target, moves)) return;
    event.preventDefault();
  };
  document.addEventListener("keydown", hear);
  return () => document.removeEventListener("keydown", hear);
}

/**
 * Whether the key means something here. Arrows do only within the list: elsewhere they scroll.
 *
 * @param {KeyboardEvent} event
 * @param {HTMLElement} target
 * @param {Moves} moves
 */
function press({ key, shiftKey }, target, moves) {
  const inside = target.closest?.("tr.job") !== null;
  if (key === "j" || (inside && key === "ArrowDown")) moves.move(1);
  else if (key === "k" || (inside && key === "ArrowUp")) moves.move(-1);
  else if (key === "x" || key === "X") moves.select(shiftKey);
  else if (key === "Enter" && inside && !target.matches("a, button")) moves.open();
  else if (key === "/") moves.search();
  else if (key === "n") moves.show();
  else if (key === "?") void help();
  else if (key === "Escape") moves.leave();
  else return false;
  return true;
}
