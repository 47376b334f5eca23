/** Selected rows: some of the page, or all matching jobs. */

export class Selection {
  /** @type {Set<string>} */
  ids = new Set();
  all = false;
  /** Start of a range. @type {string | null} */
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
   * Select all rows from the last selected one to this one.
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
    for (const selected of shown.slice(first, last + 1)) this.ids.add(selected);
    this.#from = id;
  }

  /** Select the whole page, or clear it if it is selected. @param {string[]} shown */
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

  /** Change "all matching" to the shown rows. @param {string[]} shown */
  #narrow(shown) {
    if (this.all) this.ids = new Set(shown);
    this.all = false;
  }
}
