/** Tabs with arrow key navigation. */

/** @import { Renderable } from "./virtual-dom.js" */

import { h } from "./virtual-dom.js";

/**
 * @param {string} group
 * @param {Record<string, { name: string, render: () => Renderable } | null>} every null: hidden
 * @param {string} chosen
 * @param {(name: string) => void} choose
 * @returns {Renderable}
 */
export function tabs(group, every, chosen, choose) {
  const names = Object.keys(every).filter((name) => every[name] !== null);
  const open = names.includes(chosen) ? chosen : names[0];
  const onKeydown = (/** @type {KeyboardEvent} */ event) => {
    const step = event.key === "ArrowRight" ? 1 : event.key === "ArrowLeft" ? -1 : 0;
    if (step === 0) return;
    event.preventDefault();
    const next = names[(names.indexOf(open) + step + names.length) % names.length];
    choose(next);
    document.getElementById(`${group}-tab-${next}`)?.focus();
  };
  return [
    h(
      "div",
      { class: "tabs", role: "tablist", onkeydown: onKeydown },
      names.map((name) =>
        h(
          "button",
          {
            key: name,
            type: "button",
            role: "tab",
            id: `${group}-tab-${name}`,
            "aria-selected": String(name === open),
            "aria-controls": `${group}-panel`,
            tabindex: name === open ? 0 : -1,
            onclick: () => choose(name),
          },
          every[name]?.name,
        ),
      ),
    ),
    h(
      "div",
      {
        id: `${group}-panel`,
        class: "panel",
        role: "tabpanel",
        key: `panel-${open}`,
        "aria-labelledby": `${group}-tab-${open}`,
      },
      every[open]?.render(),
    ),
  ];
}
