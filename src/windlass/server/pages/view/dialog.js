/** Questions that must be answered before something happens. */

/** @import { Given } from "./dom.js" */

import { h, render } from "./dom.js";
import { button } from "./parts.js";

/**
 * @typedef {object} Question
 * @property {string} title
 * @property {Given} [text]
 * @property {string | null} action the word on the button that does it; null: there is nothing to do
 * @property {boolean} [danger]
 * @property {boolean} [stays] whatever becomes of the page
 */

/** Those that are open, by how to close them. @type {Set<() => void>} */
const open = new Set();

/** Nobody agrees to anything any more; what is shown but once stays. */
export function dismiss() {
  for (const close of open) close();
}

/**
 * Whether the person agrees.
 *
 * @param {Question} question
 * @returns {Promise<boolean>}
 */
export function confirm({ title, text = null, action, danger = false, stays = false }) {
  return ask({
    title,
    inside: () => h("div", { class: "soft" }, text),
    action,
    danger,
    stays,
  });
}

/**
 * A dialog with anything inside. `inside(changed)` is drawn again whenever it calls `changed`.
 *
 * @param {{ title: string, inside: (changed: () => void) => Given, action: string | null,
 *   danger?: boolean, stays?: boolean, ready?: () => boolean }} question
 * @returns {Promise<boolean>}
 */
export function ask({ title, inside, action, danger = false, stays = false, ready = () => true }) {
  const element = document.createElement("dialog");
  element.setAttribute("aria-labelledby", "dialog-title");
  const back = /** @type {HTMLElement | null} */ (document.activeElement);
  return new Promise((resolve) => {
    const dismissed = () => close(false);
    const close = (/** @type {boolean} */ answer) => {
      open.delete(dismissed);
      element.close();
      element.remove();
      if (back?.isConnected) back.focus();
      else document.getElementById("main")?.focus({ preventScroll: true });
      resolve(answer);
    };
    const submit = (/** @type {Event} */ event) => {
      event.preventDefault();
      if (ready()) close(true);
    };
    const draw = () =>
      render(
        element,
        h(
          "form",
          { method: "dialog", onsubmit: submit },
          h("h2", { id: "dialog-title" }, title),
          inside(draw),
          h(
            "div",
            { class: "actions" },
            button(action === null ? "Close" : "Not now", () => close(false)),
            action !== null &&
              button(action, undefined, {
                kind: danger ? "danger main" : "main",
                type: "submit",
                disabled: !ready(),
              }),
          ),
        ),
      );
    draw();
    document.body.append(element);
    element.addEventListener("cancel", (event) => {
      event.preventDefault();
      close(false);
    });
    element.showModal();
    if (!stays) open.add(dismissed);
  });
}
