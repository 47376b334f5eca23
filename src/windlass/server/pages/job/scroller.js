/**
 * Lines of one height in a box that scrolls: only those in sight, and some around them, are in the
 * document, however many there are. It stays at the end while it follows; to scroll up is to stop
 * following, and at the end it follows again.
 */

/** @import { Given } from "../view/dom.js" */
/** @import { Line } from "./book.js" */

import { h, render } from "../view/dom.js";
import { WIDEST } from "./ansi.js";

const HEIGHT = 20; // pixels of a line: style/job.css has the same
const AROUND = 20; // lines beyond what is in sight

export class Scroller {
  follow = true;
  /** @type {Line[]} */
  #rows = [];
  #longest = 0;
  #first = 0;
  /** @type {HTMLElement | null} */
  #box = null;
  #room = document.createElement("div");
  #frame = 0;

  /**
   * @param {(line: Line) => Given} draw
   * @param {() => void} changed whether it follows
   */
  constructor(draw, changed) {
    this.draw = draw;
    this.changed = changed;
    this.#room.className = "room";
  }

  /** @param {HTMLElement} box */
  attach(box) {
    this.#box = box;
    box.append(this.#room);
    const scrolled = () => this.#scrolled();
    box.addEventListener("scroll", scrolled, { passive: true });
    const watch = new ResizeObserver(() => this.#later());
    watch.observe(box);
    this.#later();
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
      this.#box.scrollTop -= (first - this.#first) * HEIGHT; // the oldest were let go
    }
    this.#rows = rows;
    this.#first = first;
    this.#longest = longest;
    this.#paint();
  }

  /** @param {number} row to bring to the middle */
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

  #later() {
    if (this.#frame !== 0) return;
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      this.#paint();
    });
  }

  #scrolled() {
    const box = this.#box;
    if (box === null) return;
    const left = box.scrollHeight - box.clientHeight - box.scrollTop;
    const follow = left < HEIGHT;
    if (follow !== this.follow) {
      this.follow = follow;
      this.changed();
    }
    this.#later();
  }

  #size() {
    this.#room.style.setProperty("height", `${this.#rows.length * HEIGHT}px`);
    this.#room.style.setProperty("--longest", String(Math.min(this.#longest, WIDEST)));
  }

  #paint() {
    const box = this.#box;
    if (box === null || !box.isConnected) return;
    this.#size();
    if (this.follow) box.scrollTop = this.#rows.length * HEIGHT;
    const first = Math.max(0, Math.floor(box.scrollTop / HEIGHT) - AROUND);
    const last = Math.ceil((box.scrollTop + box.clientHeight) / HEIGHT) + AROUND;
    render(
      this.#room,
      this.#rows.slice(first, last).map((line, nth) =>
        h(
          "div",
          {
            key: line.n,
            class: `log-line sort-${line.sort} ${line.weight}`,
            style: { transform: `translateY(${(first + nth) * HEIGHT}px)` },
          },
          this.draw(line),
        ),
      ),
    );
  }
}
