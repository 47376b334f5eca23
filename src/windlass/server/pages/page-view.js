/**
 * Life cycle of a page. A page is a function of a `PageView`: it subscribes to its data and returns
 * a render function. A page is rendered after `changed` and once a second, for relative times.
 */

/** @import { Renderable } from "./view/virtual-dom.js" */
/** @import { PageLocation } from "./navigation.js" */

import { render } from "./view/virtual-dom.js";

/** @typedef {(view: PageView) => () => Renderable} Page */

const TICK = 1000; // milliseconds

export class PageView {
  /** @type {(() => void)[]} */
  #onClose = [];
  /** @type {(() => void) | null} */
  #onQueryChange = null;
  #frame = 0;
  #closed = false;

  /**
   * @param {Element} root
   * @param {PageLocation} location
   * @param {string[]} params path parameters of the route
   */
  constructor(root, location, params) {
    this.root = root;
    this.location = location;
    this.params = params;
  }

  /** @param {Page} page */
  open(page) {
    this.render = page(this);
    const timer = setInterval(() => document.hidden || this.changed(), TICK);
    this.onClose(() => clearInterval(timer));
    this.draw();
  }

  draw() {
    if (!this.#closed && this.render !== undefined) render(this.root, this.render());
  }

  /** Render again with the next frame. */
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

  /** Whether the page was left. Responses may arrive later. */
  get closed() {
    return this.#closed;
  }

  /** @param {() => void} call called when the page is left, to end subscriptions */
  onClose(call) {
    if (this.#closed)
      call(); // a page may navigate before it is open
    else this.#onClose.push(call);
  }

  /** @param {() => void} call called when only the URL's query has changed */
  onQueryChange(call) {
    this.#onQueryChange = call;
  }

  /** @param {PageLocation} location */
  queryChanged(location) {
    this.location = location;
    this.#onQueryChange?.();
    this.changed();
  }

  close() {
    this.#closed = true;
    cancelAnimationFrame(this.#frame);
    for (const call of this.#onClose) call();
  }
}
