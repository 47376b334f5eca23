/** All jobs, found by what they are; some or all of them told to go, stop or go on. */

/** @import { Page, View } from "../page.js" */
/** @import { Row } from "../jobs/list.js" */
/** @import { Verb } from "../jobs/verbs.js" */

import { chosenBar, plainBar, workBar } from "../jobs/bar.js";
import { Counts } from "../jobs/counts.js";
import { Filters, SEARCH } from "../jobs/filters.js";
import { help, listen } from "../jobs/keys.js";
import { JobList } from "../jobs/list.js";
import { rowLink } from "../jobs/row.js";
import { Selection } from "../jobs/selection.js";
import { jobTable, nothing } from "../jobs/table.js";
import { mayAct, verbsFor, verbsForAll } from "../jobs/verbs.js";
import { address, asked, narrow, read, turned, words } from "../jobs/wanted.js";
import { Worker } from "../jobs/work.js";
import { live } from "../live/tab.js";
import { go, to } from "../router.js";
import { may } from "../session.js";
import { h } from "../view/dom.js";
import { icon } from "../view/icons.js";
import { button, title, trouble } from "../view/parts.js";

/**
 * The page before each, by its cursor: the server only leads on.
 *
 * @type {Map<string, string | null>}
 */
const newer = new Map();

/** @type {Page} */
export function jobsPage(view) {
  const screen = new Screen(view);
  view.title("Jobs");
  view.onMove(() => screen.moved());
  view.onClose(() => screen.close());
  return () => screen.looks();
}

class Screen {
  /** Where the keyboard is. @type {string | null} */
  #current = null;
  #known = { queues: /** @type {string[]} */ ([]), tasks: /** @type {string[]} */ ([]) };
  #selection = new Selection();
  #view;
  #wanted;
  #list;
  #counts;
  #filters;
  #worker;
  /** @type {(() => void)[]} */
  #stops;

  /** @param {View} view */
  constructor(view) {
    const changed = () => view.changed();
    this.#view = view;
    this.#wanted = read(view.place.query);
    this.#list = new JobList(changed);
    this.#counts = new Counts(changed, asked(this.#wanted));
    this.#filters = new Filters(() => this.#wanted, changed);
    this.#worker = new Worker(changed);
    this.#stops = [this.#keys(), ...this.#suggestions()];
    void this.#load();
  }

  close() {
    this.#list.close();
    this.#counts.close();
    this.#filters.close();
    for (const stop of this.#stops) stop();
  }

  moved() {
    this.#wanted = read(this.#view.place.query);
    this.#filters.moved();
    this.#selection.clear();
    this.#current = null;
    void this.#load();
  }

  async #load() {
    const wanted = this.#wanted;
    await this.#list.open(wanted);
    if (wanted !== this.#wanted || this.#list.rows === null) return;
    const whole = wanted.cursor === null && this.#list.cursor === null;
    this.#counts.follow(asked(wanted)); // after the rows, which are what one waits for
    void this.#counts.ask(asked(wanted), whole ? this.#list.rows : null);
  }

  looks() {
    const { rows, error, loading } = this.#list;
    return [
      title(
        "Jobs",
        may("produce") &&
          h("a", { class: "button", href: to("enqueue") }, icon("enqueue"), "Enqueue"),
      ),
      this.#filters.looks(this.#counts, this.#known),
      h("div", { class: "jobs-bar", role: "toolbar", "aria-label": "Jobs" }, this.#bar()),
      error !== null && trouble(error, () => this.#load()),
      rows !== null && rows.length === 0 && !loading
        ? nothing(narrow(this.#wanted), this.#list.cursor !== null)
        : error === null || rows !== null
          ? jobTable(rows, this.#table(loading))
          : null,
    ];
  }

  /** @param {boolean} busy */
  #table(busy) {
    const shown = this.#shown;
    return {
      busy,
      current: this.#current ?? shown[0] ?? null,
      selectable: mayAct(),
      selection: this.#selection,
      fits: (/** @type {Row} */ row) => this.#list.fits(row),
      focus: (/** @type {string} */ id) => (this.#current = id),
      select: (/** @type {string} */ id, /** @type {boolean} */ range) => this.#select(id, range),
      page: () => {
        this.#selection.page(shown);
        this.#view.changed();
      },
    };
  }

  get #shown() {
    return (this.#list.rows ?? []).filter((row) => !row.gone).map(({ id }) => id);
  }

  #bar() {
    const { work } = this.#worker;
    if (work !== null) return workBar(work);
    if (!this.#selection.empty) return this.#chosen();
    return plainBar({
      total: this.#counts.total,
      fresh: this.#list.fresh.size,
      show: () => this.#show(),
      help: () => void help(),
      pages: this.#pages(),
    });
  }

  #chosen() {
    const { all, ids } = this.#selection;
    const rows = (this.#list.rows ?? []).filter(({ id, gone }) => ids.has(id) && !gone);
    const whole = this.#shown.length > 0 && this.#shown.every((id) => ids.has(id));
    const more = this.#list.cursor !== null || this.#wanted.cursor !== null;
    const select = (/** @type {() => void} */ change) => () => {
      change();
      this.#view.changed();
    };
    return chosenBar({
      all,
      busy: this.#worker.busy,
      count: rows.length,
      page: whole || all ? null : select(() => this.#selection.page(this.#shown)),
      everything: whole && more && !all ? select(() => this.#selection.everything()) : null,
      verbs: all ? verbsForAll(asked(this.#wanted)) : verbsFor(rows),
      act: (verb) => void this.#act(verb, rows),
      clear: () => this.#leave(),
    });
  }

  /** @param {Verb} verb @param {Row[]} rows */
  async #act(verb, rows) {
    const wanted = this.#wanted;
    const done = this.#selection.all
      ? await this.#worker.all(verb, asked(wanted), () => words(wanted) || "All jobs.")
      : await this.#worker.some(verb, rows);
    if (!done) return;
    this.#selection.clear();
    this.#list.refresh();
    this.#view.changed();
  }

  #pages() {
    const { cursor } = this.#wanted;
    const older = this.#list.cursor;
    const before = cursor === null ? undefined : newer.get(cursor);
    const move = (/** @type {string | null} */ place) =>
      go(address(turned(this.#wanted, place, this.#list.filter)));
    const next = () => {
      if (older !== null) newer.set(older, cursor);
      move(older);
    };
    return h(
      "span",
      { class: "pages" },
      button("Newest", () => move(null), { slim: true, disabled: cursor === null }),
      button(icon("left"), () => move(before ?? null), {
        slim: true,
        disabled: before === undefined,
        label: "Newer",
        title: "Newer",
      }),
      button(icon("right"), next, {
        slim: true,
        disabled: older === null,
        label: "Older",
        title: "Older",
      }),
    );
  }

  /** The newest page, with what is new on it. */
  #show() {
    if (this.#wanted.cursor !== null) return;
    this.#selection.clear();
    this.#current = null;
    void this.#load();
    window.scrollTo(0, 0);
  }

  /** @param {string} id @param {boolean} range */
  #select(id, range) {
    if (range) this.#selection.range(id, this.#shown);
    else this.#selection.toggle(id, this.#shown);
    this.#view.changed();
  }

  #leave() {
    if (this.#selection.empty) /** @type {HTMLElement | null} */ (document.activeElement)?.blur();
    this.#selection.clear();
    this.#view.changed();
  }

  #keys() {
    return listen({
      move: (by) => this.#move(by),
      select: (range) => {
        if (mayAct() && this.#current !== null) this.#select(this.#current, range);
      },
      open: () => this.#current !== null && go(to(`jobs/${encodeURIComponent(this.#current)}`)),
      search: () =>
        /** @type {HTMLInputElement | null} */ (document.getElementById(SEARCH))?.select(),
      show: () => this.#show(),
      leave: () => this.#leave(),
    });
  }

  /** @param {number} by */
  #move(by) {
    const ids = (this.#list.rows ?? []).map(({ id }) => id);
    const at = this.#current === null ? -1 : ids.indexOf(this.#current);
    const next = ids[at < 0 ? 0 : Math.max(0, Math.min(ids.length - 1, at + by))];
    if (next === undefined) return;
    this.#current = next;
    document.getElementById(rowLink(next))?.focus();
    this.#view.changed();
  }

  #suggestions() {
    const tasks = live.poll("/api/tasks", 60, (answer) => {
      this.#known.tasks = (answer?.tasks ?? []).map(
        (/** @type {{ name: string }} */ one) => one.name,
      );
      this.#view.changed();
    });
    if (!may("survey")) return [tasks];
    const queues = live.poll("/api/queues", 30, (answer) => {
      this.#known.queues = (answer?.queues ?? []).map(
        (/** @type {{ name: string }} */ one) => one.name,
      );
      this.#view.changed();
    });
    return [tasks, queues];
  }
}
