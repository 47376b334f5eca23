/** Toasts: shown for a few seconds; failures stay until closed. */

/** @import { Renderable } from "./virtual-dom.js" */
/** @import { State } from "../client/windlass.js" */

import { h, render } from "./virtual-dom.js";
import { icon } from "./icons.js";

const DURATION = 6000; // milliseconds
const MAX_TOASTS = 4;

/** @type {{ id: number, text: Renderable, state: State }[]} */
let shown = [];
let last = 0;
const root = document.createElement("div");
root.className = "toasts";
root.setAttribute("role", "status");
root.setAttribute("aria-live", "polite");
document.body.append(root);

/** @param {Renderable} text @param {State} [state] sets the color */
export function toast(text, state = "succeeded") {
  last += 1;
  const id = last;
  shown = [...shown, { id, text, state }].slice(-MAX_TOASTS);
  if (state !== "failed") setTimeout(() => close(id), DURATION);
  draw();
}

/** @param {number} id */
function close(id) {
  shown = shown.filter((toast) => toast.id !== id);
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
