/** JSON values with syntax highlighting. */

/** @import { Renderable } from "./virtual-dom.js" */

import { h } from "./virtual-dom.js";

/** Rendered values: a page renders with every event, and a value may be a megabyte. */
const cache = new WeakMap();

/** Render a value as indented JSON. @param {any} value */
export function jsonView(value) {
  const cached = cache.get(value);
  if (cached !== undefined) return cached;
  const text = JSON.stringify(value, null, 2) ?? "null";
  const node = h("pre", { class: "code", tabindex: 0 }, tokens(text));
  if (typeof value === "object" && value !== null) cache.set(value, node);
  return node;
}

const TOKEN =
  /("(?:\\.|[^"\\])*")(\s*:)?|\b(?:true|false|null)\b|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

/** @param {string} text @returns {Renderable[]} */
function tokens(text) {
  if (text.length > 100_000) return [text];
  /** @type {Renderable[]} */
  const found = [];
  let last = 0;
  for (const match of text.matchAll(TOKEN)) {
    found.push(text.slice(last, match.index));
    const kind = match[2] !== undefined ? "name" : match[1] !== undefined ? "text" : "value";
    found.push(h("span", { class: kind }, match[1] ?? match[0]), match[2] ?? "");
    last = match.index + match[0].length;
  }
  return [...found, text.slice(last)];
}
