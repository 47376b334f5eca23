/** Modal dialogs. */

/** @import { Renderable } from "./virtual-dom.js" */

import { h, render } from "./virtual-dom.js";
import { button } from "./components.js";

/**
 * @typedef {object} Confirmation
 * @property {string} title
 * @property {Renderable} [text]
 * @property {string | null} action label of the confirm button; null: only a close button
 * @property {boolean} [danger]
 * @property {boolean} [stays] open when the page changes
 */

/** Close functions of open dialogs. @type {Set<() => void>} */
const open = new Set();

/** Close all dialogs, except those that stay open across pages. */
export function closeDialogs() {
  for (const close of open) close();
}

/**
 * Ask for confirmation. Resolves to whether the user confirmed.
 *
 * @param {Confirmation} options
 * @returns {Promise<boolean>}
 */
export function confirm({ title, text = null, action, danger = false, stays = false }) {
  return openDialog({
    title,
    content: () => h("div", { class: "soft" }, text),
    action,
    danger,
    stays,
  });
}

/**
 * Open a dialog. `content(changed)` is rendered again whenever it calls `changed`.
 *
 * @param {{ title: string, content: (changed: () => void) => Renderable, action: string | null,
 *   danger?: boolean, stays?: boolean, ready?: () => boolean }} options
 * @returns {Promise<boolean>}
 */
export function openDialog(options) {
  const { title, content, action, danger = false, stays = false, ready = () => true } = options;
  const element = document.createElement("dialog");
  element.setAttribute("aria-labelledby", "dialog-title");
  const previousFocus = /** @type {HTMLElement | null} */ (document.activeElement);
  return new Promise((resolve) => {
    const cancel = () => close(false);
    const close = (/** @type {boolean} */ answer) => {
      open.delete(cancel);
      element.close();
      element.remove();
      if (previousFocus?.isConnected) previousFocus.focus();
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
          content(draw),
          h(
            "div",
            { class: "actions" },
            button(action === null ? "Close" : "Go back", () => close(false)),
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
    if (!stays) open.add(cancel);
  });
}
