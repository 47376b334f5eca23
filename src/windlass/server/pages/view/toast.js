/** What was done, told for a few seconds; a failure stays until it is closed. */

/** @import { Given } from "./dom.js" */
/** @import { State } from "../client/windlass.js" */

import { h, render } from "./dom.js";
import { icon } from "./icons.js";

const SHOWN = 6000; // milliseconds
const MOST = 4;

/** @type {{ id: number, text: Given, state: State }[]} */
let shown = [];
let last = 0;
const root = document.createElement("div");
root.className = "toasts";
root.setAttribute("role", "status");
root.setAttribute("aria-live", "polite");
document.body.append(root);

/** @param {Given} text @param {State} [state] whose colour it has */
export function toast(text, state = "succeeded") {
  last += 1;
  const id = last;
  shown = [...shown, { id, text, state }].slice(-MOST);
  if (state !== "failed") setTimeout(() => close(id), SHOWN);
  draw();
}

/** @param {number} id */
function close(id) {
  shown = shown.filter((one) => one.id !== id);
  draw();
}

export function clearToasts() {
  shown = [];
  draw();
}

function draw() {
  render(
    root,
    shown.map(({ id, text, state }) =>
      h(
        "div",
        { class: `toast state-${state}`, key: id },
        h("div", null, text),
        h(
          "button",
          {
            type: "button",
            class: "button plain slim",
            "aria-label": "Close",
            onclick: () => close(id),
          },
          icon("close"),
        ),
      ),
    ),
  );
}
