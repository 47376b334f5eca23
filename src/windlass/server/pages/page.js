/**
 * What a page is: a function that is given a view, begins to listen to what it shows, and returns
 * how it looks. It looks again whenever it says `changed`, and once a second, as times pass.
 */

/** @import { Given } from "./view/dom.js" */
/** @import { Place } from "./router.js" */

import { render } from "./view/dom.js";

/** @typedef {(view: View) => () => Given} Page */

const TICK = 1000; // milliseconds

export class View {
  /** @type {(() => void)[]} */
  #leaving = [];
  /** @type {(() => void) | null} */
  #moved = null;
  #frame = 0;
  #closed = false;

  /**
   * @param {Element} root
   * @param {Place} place
   * @param {string[]} parts what the address has at the places of the page's path
   */
  constructor(root, place, parts) {
    this.root = root;
    this.place = place;
    this.parts = parts;
  }

  /** @param {Page} page */
  open(page) {
    this.looks = page(this);
    const timer = setInterval(() => document.hidden || this.changed(), TICK);
    this.onClose(() => clearInterval(timer));
    this.draw();
  }

  draw() {
    if (!this.#closed && this.looks !== undefined) render(this.root, this.looks());
  }

  /** Something that it shows is different: it is drawn with the next frame. */
  changed() {
    if (this.#frame !== 0 || this.#closed) return;
    this.#frame = requestAnimationFrame(() => {
      this.#frame = 0;
      this.draw();
    });
  }

  /** @param {string} text */
  title(text) {
    document.title = text ? `${text} · Windlass` : "Windlass";
  }

  /** Whether the page was left: what it asked for may be answered later than that. */
  get closed() {
    return this.#closed;
  }

  /** @param {() => void} call when the page is left: stops of what it listens to */
  onClose(call) {
    if (this.#closed) call(); // a page may lead to another before it is open
    else this.#leaving.push(call);
  }

  /** @param {() => void} call when the query of the address has changed, and nothing else */
  onMove(call) {
    this.#moved = call;
  }

  /** @param {Place} place */
  moved(place) {
    this.place = place;
    this.#moved?.();
    this.changed();
  }

  close() {
    this.#closed = true;
    cancelAnimationFrame(this.#frame);
    for (const call of this.#leaving) call();
  }
}
