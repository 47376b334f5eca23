/** Which rows are chosen: some of the page, or all jobs that match, shown or not. */

export class Selection {
  /** @type {Set<string>} */
  ids = new Set();
  all = false;
  /** Where a range begins. @type {string | null} */
  #from = null;

  get empty() {
    return !this.all && this.ids.size === 0;
  }

  /** @param {string} id */
  has(id) {
    return this.all || this.ids.has(id);
  }

  /**
   * @param {string} id
   * @param {string[]} shown
   */
  toggle(id, shown) {
    this.#narrow(shown);
    if (!this.ids.delete(id)) this.ids.add(id);
    this.#from = id;
  }

  /**
   * All from the last one that was chosen to this one.
   *
   * @param {string} id
   * @param {string[]} shown
   */
  range(id, shown) {
    this.#narrow(shown);
    const from = this.#from === null ? -1 : shown.indexOf(this.#from);
    const until = shown.indexOf(id);
    const [first, last] =
      from < 0 ? [until, until] : [Math.min(from, until), Math.max(from, until)];
    for (const one of shown.slice(first, last + 1)) this.ids.add(one);
    this.#from = id;
  }

  /** The whole page, or none of it if it is. @param {string[]} shown */
  page(shown) {
    const whole = this.all || shown.every((id) => this.ids.has(id));
    this.clear();
    if (!whole) this.ids = new Set(shown);
  }

  everything() {
    this.clear();
    this.all = true;
  }

  clear() {
    this.ids = new Set();
    this.all = false;
    this.#from = null;
  }

  /** From all that match to those that are shown. @param {string[]} shown */
  #narrow(shown) {
    if (this.all) this.ids = new Set(shown);
    this.all = false;
  }
}
