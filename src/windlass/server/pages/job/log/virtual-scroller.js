/**
 * Virtual scrolling of lines of equal height: only visible lines and some around them are in the
 * document. Follows the end of the log; scrolling up stops following, and reaching the end resumes.
 */

/** @import { Renderable } from "../../view/virtual-dom.js" */
/** @import { Line } from "./log-lines.js" */

import { h, render } from "../../view/virtual-dom.js";
import { MAX_WIDTH } from "./ansi.js";

const HEIGHT = 20; // pixels of a line, as in style/page/log.css
const OVERSCAN = 20; // lines beyond the visible ones

export class VirtualScroller {
  follow = true;
  /** @type {Line[]} */
  #rows = [];
  #longest = 0;
  #first = 0;
  /** @type {HTMLElement | null} */
  #box = null;
  #canvas = document.createElement("div");
  #frame = 0;

  /**
   * @param {(line: Line) => Renderable} draw
   * @param {() => void} changed called when `follow` changes
   */
  constructor(draw, changed) {
    this.draw = draw;
    this.changed = changed;
    this.#canvas.className = "log-canvas";
  }

  /** @param {HTMLElement} box */
  attach(box) {
    this.#box = box;
    box.append(this.#canvas);
    const onScroll = () => this.#onScroll();
    box.addEventListener("scroll", onScroll, { passive: true });
    const watch = new ResizeObserver(() => this.#schedulePaint());
    watch.observe(box);
    this.#schedulePaint();
    return () => {
      watch.disconnect();
      cancelAnimationFrame(this.#frame);
      this.#frame = 0;
      this.#box = null;
    };
  }

  /**
   * @param {Line[]} rows
   * @param {number} longest characters
   */
  show(rows, longest) {
    const first = rows[0]?.n ?? 0;
    if (this.#box !== null && !this.follow && rows === this.#rows && first > this.#first) {
      this.#box.scrollTop -= (first - this.#first) * HEIGHT; // the oldest lines were dropped
    }
    this.#rows = rows;
    this.#first = first;
    this.#longest = longest;
    this.#paint();
  }

  /** @param {number} row to scroll to the middle */
  reveal(row) {
    this.follow = false;
    if (this.#box === null) return;
    this.#size();
    this.#box.scrollTop = (row + 0.5) * HEIGHT - this.#box.clientHeight / 2;
    this.#paint();
  }

  toEnd() {
    this.follow = true;
    this.#paint();
  }

  #schedulePaint() {
    if (this.#frame !== 0) return;
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      this.#paint();
    });
  }

  #onScroll() {
    const box = this.#box;
    if (box === null) return;
    const left = box.scrollHeight - box.clientHeight - box.scrollTop;
    const follow = left < HEIGHT;
    if (follow !== this.follow) {
      this.follow = follow;
      this.changed();
    }
    this.#schedulePaint();
  }

  #size() {
    this.#canvas.style.setProperty("height", `${this.#rows.length * HEIGHT}px`);
    this.#canvas.style.setProperty("--longest", String(Math.min(this.#longest, MAX_WIDTH)));
  }

  #paint() {
    const box = this.#box;
    if (box === null || !box.isConnected) return;
    this.#size();
    if (this.follow) box.scrollTop = this.#rows.length * HEIGHT;
    const first = Math.max(0, Math.floor(box.scrollTop / HEIGHT) - OVERSCAN);
    const last = Math.ceil((box.scrollTop + box.clientHeight) / HEIGHT) + OVERSCAN;
    render(
      this.#canvas,
      this.#rows.slice(first, last).map((line, nth) =>
        h(
          "div",
          {
            key: line.n,
            class: `log-line kind-${line.kind} ${line.severity}`,
            style: { transform: `translateY(${(first + nth) * HEIGHT}px)` },
          },
          this.draw(line),
        ),
      ),
    );
  }
}
