/** Dependency graph, from left to right. Each job is a link in the color of its state. */

/** @import { Renderable } from "./virtual-dom.js" */
/** @import { JobSummary, State } from "../client/windlass.js" */
/** @import { Placed } from "./graph-layout.js" */

import { shortId } from "../format.js";
import { pageUrl } from "../navigation.js";
import { h } from "./virtual-dom.js";
import { layered } from "./graph-layout.js";
import { badge } from "./components.js";

const WIDTH = 204;
const HEIGHT = 52;
const GAP = 56; // between two layers
const STEP = 64; // from one node to the next below it

/** @typedef {JobSummary & { dependsOn: string[] }} GraphNode */

/**
 * @param {GraphNode[]} nodes
 * @param {{ focus?: string }} [options] the current job
 * @returns {Renderable}
 */
export function dependencyGraph(nodes, { focus } = {}) {
  const { placed, layers, widest } = layered(nodes);
  const states = new Map(nodes.map(({ id, state }) => [id, state]));
  const width = Math.max(WIDTH, layers * (WIDTH + GAP) - GAP);
  const height = Math.max(HEIGHT, widest * STEP - (STEP - HEIGHT));
  return h(
    "div",
    { class: "graph", tabindex: 0, role: "region", "aria-label": "Dependency graph" },
    h(
      "div",
      { class: "graph-canvas", style: { width: `${width}px`, height: `${height}px` } },
      h(
        "svg",
        { class: "edges", viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": "true" },
        nodes.map((node) => edges(node, placed, states)),
      ),
      h(
        "ul",
        null,
        nodes.map((node) => vertex(node, placed, node.id === focus)),
      ),
    ),
    h("span", { key: "center", island: center }),
  );
}

/** @param {Placed} one */
const corner = ({ layer, row }) => ({ x: layer * (WIDTH + GAP), y: row * STEP });

/**
 * @param {GraphNode} node
 * @param {Map<string, Placed>} placed
 * @param {Map<string, State>} states
 */
function edges(node, placed, states) {
  const end = placed.get(node.id);
  return node.dependsOn.map((parent) => {
    const start = placed.get(parent);
    if (start === undefined || end === undefined) return null;
    const from = corner(start);
    const until = corner(end);
    const [x1, y1] = [from.x + WIDTH, from.y + HEIGHT / 2];
    const [x2, y2] = [until.x, until.y + HEIGHT / 2];
    const bend = Math.max(GAP / 2, (x2 - x1) / 2);
    return h("path", {
      key: `${parent} ${node.id}`,
      class: `state-${states.get(parent)}`,
      d: `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`,
    });
  });
}

/**
 * @param {GraphNode} node
 * @param {Map<string, Placed>} placed
 * @param {boolean} current
 */
function vertex(node, placed, current) {
  const { x, y } = corner(/** @type {Placed} */ (placed.get(node.id)));
  const running = node.state === "running" || node.state === "retrying";
  return h(
    "li",
    {
      key: node.id,
      style: { transform: `translate(${x}px, ${y}px)`, width: `${WIDTH}px`, height: `${HEIGHT}px` },
    },
    h(
      "a",
      {
        class: `node state-${node.state}`,
        href: pageUrl(`jobs/${encodeURIComponent(node.id)}`),
        title: `${node.task} · ${node.id}`,
        "aria-current": current ? "true" : undefined,
      },
      h("span", { class: "name cut" }, node.task),
      h(
        "span",
        { class: "status" },
        badge(node.state),
        running && h("span", { class: "soft" }, `${node.percent} %`),
        h("span", { class: "faint mono" }, shortId(node.id)),
      ),
      running && h("span", { class: "fill", style: { width: `${node.percent}%` } }),
    ),
  );
}

/** Scroll a wide graph to the current job. @param {HTMLElement} element */
function center(element) {
  requestAnimationFrame(() => {
    const box = element.closest(".graph");
    const here = box?.querySelector("[aria-current]");
    if (!box || !here) return;
    const [outer, inner] = [box.getBoundingClientRect(), here.getBoundingClientRect()];
    box.scrollLeft += inner.left + inner.width / 2 - (outer.left + outer.width / 2);
    box.scrollTop += inner.top + inner.height / 2 - (outer.top + outer.height / 2);
  });
}
