/** Time charts: stacked columns or lines. */

/** @import { Renderable } from "./virtual-dom.js" */

import { timeText } from "../format.js";
import { h } from "./virtual-dom.js";

/**
 * @typedef {object} Series
 * @property {string} name
 * @property {string} color a name from tokens.css
 * @property {(number | null)[]} values one per column; null: no data
 */

/**
 * @typedef {object} ChartOptions
 * @property {string} label short title
 * @property {number[]} times start of each column, in milliseconds
 * @property {Series[]} series
 * @property {"columns" | "lines"} kind
 * @property {(value: number) => string} format
 * @property {(value: number) => number} [round] rounds up to the top of the scale
 * @property {() => void} changed
 */

const WIDTH = 600;
const HEIGHT = 100;

/** A chart keeps only the selected column; all else is passed to `draw`. */
export class Chart {
  /** @type {number | null} */
  #selected = null;

  /**
   * @param {ChartOptions} options
   * @returns {Renderable}
   */
  draw(options) {
    const { label, times, series, kind, format } = options;
    const top = (options.round ?? nice)(highest(series, kind));
    const selected =
      this.#selected !== null && this.#selected < times.length ? this.#selected : null;
    return h(
      "figure",
      { class: "chart" },
      h("figcaption", null, h("h3", null, label), legend(series, selected, format)),
      h(
        "div",
        {
          class: "plot",
          role: "img",
          tabindex: 0,
          "aria-label": description(label, times, series, selected, format),
          onpointermove: (/** @type {PointerEvent} */ event) => this.#point(event, options),
          onpointerleave: () => this.#set(null, options),
          onblur: () => this.#set(null, options),
          onkeydown: (/** @type {KeyboardEvent} */ event) => this.#step(event, options),
        },
        scale(top, format),
        h(
          "svg",
          { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" },
          [0, 0.5, 1].map((part) =>
            h("line", { class: "grid", x1: 0, x2: WIDTH, y1: part * HEIGHT, y2: part * HEIGHT }),
          ),
          selected !== null && mark(selected, times.length),
          kind === "columns"
            ? columns(series, times.length, top)
            : lines(series, times.length, top),
        ),
      ),
      axis(times, selected),
    );
  }

  /** @param {PointerEvent} event @param {ChartOptions} options */
  #point(event, options) {
    const box = /** @type {Element} */ (event.currentTarget).getBoundingClientRect();
    const place = Math.floor(((event.clientX - box.left) / box.width) * options.times.length);
    this.#set(Math.min(Math.max(place, 0), options.times.length - 1), options);
  }

  /** @param {KeyboardEvent} event @param {ChartOptions} options */
  #step(event, options) {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    const last = options.times.length - 1;
    this.#set(Math.min(Math.max((this.#selected ?? last) + by, 0), last), options);
  }

  /** @param {number | null} place @param {ChartOptions} options */
  #set(place, options) {
    if (place === this.#selected) return;
    this.#selected = place;
    options.changed();
  }
}

/** @param {Series[]} series @param {"columns" | "lines"} kind */
function highest(series, kind) {
  const all = series.map(({ values }) => values.map((value) => value ?? 0));
  if (kind === "lines") return Math.max(0, ...all.flat());
  return Math.max(
    0,
    ...(all[0] ?? []).map((_, place) => all.reduce((sum, values) => sum + values[place], 0)),
  );
}

/** Return the next round number: 1, 2, 5, 10 … @param {number} value */
export function nice(value) {
  if (value <= 0) return 1;
  const unit = 10 ** Math.floor(Math.log10(value));
  return /** @type {number} */ ([1, 2, 5, 10].find((step) => step * unit >= value)) * unit;
}

const DURATIONS = [1, 2, 4, 10, 20, 60, 120, 240, 600, 1200, 3600, 7200, 14_400, 43_200, 86_400];

/** Return the next round duration: whole minutes, hours, days. @param {number} seconds */
export const niceDuration = (seconds) =>
  seconds <= 1
    ? nice(seconds)
    : (DURATIONS.find((limit) => limit >= seconds) ?? nice(seconds / 86_400) * 86_400);

/** @param {Series[]} series @param {number} count @param {number} top */
function columns(series, count, top) {
  const wide = WIDTH / count;
  const gap = Math.min(2, wide * 0.2);
  const below = new Array(count).fill(0);
  return series.map((dataset) => {
    let path = "";
    for (const [place, value] of dataset.values.entries()) {
      if (!value) continue;
      const height = (value / top) * HEIGHT;
      const y = HEIGHT - below[place] - height;
      path += `M${place * wide + gap / 2} ${y}h${wide - gap}v${height}h${gap - wide}z`;
      below[place] += height;
    }
    return h("path", { class: "area", d: path, style: { fill: `var(--${dataset.color})` } });
  });
}

/** @param {Series[]} series @param {number} count @param {number} top */
function lines(series, count, top) {
  const wide = WIDTH / count;
  return series.map((dataset) => {
    let path = "";
    let drawing = false;
    for (const [place, value] of dataset.values.entries()) {
      if (value === null) {
        drawing = false;
        continue;
      }
      const y = HEIGHT - (value / top) * HEIGHT;
      const x = (place + 0.5) * wide;
      // A value between two gaps is a short dash: a point would be invisible.
      path += drawing ? `L${x} ${y}` : `M${x - wide / 4} ${y}L${x} ${y}`;
      drawing = true;
    }
    return h("path", { class: "curve", d: path, style: { stroke: `var(--${dataset.color})` } });
  });
}

/** @param {number} place @param {number} count */
const mark = (place, count) =>
  h("rect", {
    class: "mark",
    x: (place * WIDTH) / count,
    y: 0,
    width: WIDTH / count,
    height: HEIGHT,
  });

/** @param {number} top @param {(value: number) => string} format */
const scale = (top, format) =>
  h(
    "div",
    { class: "scale", "aria-hidden": "true" },
    h("span", null, format(top)),
    h("span", null, format(top / 2)),
  );

/** @param {number[]} times @param {number | null} selected */
function axis(times, selected) {
  const first = times[0];
  const shown =
    selected === null
      ? [first, times[Math.floor(times.length / 2)], "now"]
      : [first, times[selected], "now"];
  return h(
    "div",
    { class: "axis", "aria-hidden": "true" },
    shown.map((time) => h("span", null, typeof time === "number" ? clock(time) : time)),
  );
}

/** @param {number | undefined} time */
const clock = (time) =>
  time === undefined ? "" : timeText(new Date(time)).replace(/:\d\d(?=\s|$)/, "");

/**
 * @param {Series[]} series
 * @param {number | null} selected
 * @param {(value: number) => string} format
 */
const legend = (series, selected, format) =>
  h(
    "ul",
    { class: "legend" },
    series.map((dataset) =>
      h(
        "li",
        { key: dataset.name },
        h("span", { class: "dot", style: { background: `var(--${dataset.color})` } }),
        dataset.name,
        h("strong", null, valueOf(dataset, selected, format)),
      ),
    ),
  );

/** @param {Series} dataset @param {number | null} selected @param {(value: number) => string} format */
function valueOf(dataset, selected, format) {
  if (selected === null) return "";
  const value = dataset.values[selected];
  return value === null || value === undefined ? "–" : format(value);
}

/**
 * @param {string} label
 * @param {number[]} times
 * @param {Series[]} series
 * @param {number | null} selected
 * @param {(value: number) => string} format
 */
function description(label, times, series, selected, format) {
  const place = selected ?? times.length - 1;
  const values = series
    .map((dataset) => `${dataset.name} ${valueOf(dataset, place, format)}`)
    .join(", ");
  return `${label}. At ${clock(times[place])}: ${values}. Use the arrow keys to move.`;
}
