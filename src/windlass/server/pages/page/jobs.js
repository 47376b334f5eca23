/** Job list with filters, selection and bulk actions. */

/** @import { Page, PageView } from "../page-view.js" */
/** @import { Row } from "../jobs/job-list.js" */
/** @import { ActionName } from "../jobs/actions.js" */

import { listBar, progressBar, selectionBar } from "../jobs/toolbar.js";
import { JobCounts } from "../jobs/job-counts.js";
import { FilterForm, SEARCH } from "../jobs/filter-form.js";
import { help, listen } from "../jobs/shortcuts.js";
import { JobList } from "../jobs/job-list.js";
import { rowLink } from "../jobs/row.js";
import { Selection } from "../jobs/selection.js";
import { emptyList, jobTable } from "../jobs/table.js";
import { mayAct, actionsFor, actionsForAll } from "../jobs/actions.js";
import { describe, filterOf, hasFilters, queryFrom, urlOf, withCursor } from "../jobs/query.js";
import { BulkActions } from "../jobs/bulk-actions.js";
import { live } from "../live/live.js";
import { navigate, pageUrl } from "../navigation.js";
import { may } from "../session.js";
import { h } from "../view/virtual-dom.js";
import { icon } from "../view/icons.js";
import { button, errorNote, title } from "../view/components.js";

/**
 * Cursor of the previous page, by cursor: the API has only next-page cursors.
 *
 * @type {Map<string, string | null>}
 */
const newer = new Map();

/** @type {Page} */
export function jobsPage(view) {
  const screen = new JobsScreen(view);
  view.title("Jobs");
  view.onQueryChange(() => screen.queryChanged());
  view.onClose(() => screen.close());
  return () => screen.render();
}

class JobsScreen {
  /** Row with the keyboard focus. @type {string | null} */
  #current = null;
  #known = { queues: /** @type {string[]} */ ([]), tasks: /** @type {string[]} */ ([]) };
  #selection = new Selection();
  #view;
  #query;
  #list;
  #counts;
  #filters;
  #bulk;
  /** @type {(() => void)[]} */
  #stops;

  /** @param {PageView} view */
  constructor(view) {
    const changed = () => view.changed();
    this.#view = view;
    this.#query = queryFrom(view.location.query);
    this.#list = new JobList(changed);
    this.#counts = new JobCounts(changed, filterOf(this.#query));
    this.#filters = new FilterForm(() => this.#query, changed);
    this.#bulk = new BulkActions(changed);
    this.#stops = [this.#shortcuts(), ...this.#suggestions()];
    void this.#load();
  }

  close() {
    this.#list.close();
    this.#counts.close();
    this.#filters.close();
    for (const stop of this.#stops) stop();
  }

  queryChanged() {
    this.#query = queryFrom(this.#view.location.query);
    this.#filters.queryChanged();
    this.#selection.clear();
    this.#current = null;
    void this.#load();
  }

  async #load() {
    const query = this.#query;
    await this.#list.open(query);
    if (query !== this.#query || this.#list.rows === null) return;
    const complete = query.cursor === null && this.#list.cursor === null;
    this.#counts.follow(filterOf(query)); // after the rows, which come first
    void this.#counts.countTotal(filterOf(query), complete ? this.#list.rows : null);
  }

  render() {
    const { rows, error, loading } = this.#list;
    return [
      title(
        "Jobs",
        may("produce") &&
          h("a", { class: "button", href: pageUrl("enqueue") }, icon("enqueue"), "Enqueue"),
      ),
      this.#filters.render(this.#counts, this.#known),
      h("div", { class: "jobs-bar", role: "toolbar", "aria-label": "Jobs" }, this.#bar()),
      error !== null && errorNote(error, () => this.#load()),
      rows !== null && rows.length === 0 && !loading
        ? emptyList(hasFilters(this.#query), this.#list.cursor !== null)
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
      matches: (/** @type {Row} */ row) => this.#list.matches(row),
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
    const { running } = this.#bulk;
    if (running !== null) return progressBar(running);
    if (!this.#selection.empty) return this.#selectionBar();
    return listBar({
      total: this.#counts.total,
      newCount: this.#list.newJobs.size,
      show: () => this.#showNew(),
      help: () => void help(),
      pages: this.#pages(),
    });
  }

  #selectionBar() {
    const { all, ids } = this.#selection;
    const rows = (this.#list.rows ?? []).filter(({ id, gone }) => ids.has(id) && !gone);
    const wholePage = this.#shown.length > 0 && this.#shown.every((id) => ids.has(id));
    const more = this.#list.cursor !== null || this.#query.cursor !== null;
    const select = (/** @type {() => void} */ change) => () => {
      change();
      this.#view.changed();
    };
    return selectionBar({
      all,
      busy: this.#bulk.busy,
      count: rows.length,
      page: wholePage || all ? null : select(() => this.#selection.page(this.#shown)),
      everything: wholePage && more && !all ? select(() => this.#selection.everything()) : null,
      actions: all ? actionsForAll(filterOf(this.#query)) : actionsFor(rows),
      act: (action) => void this.#act(action, rows),
      clear: () => this.#escape(),
    });
  }

  /** @param {ActionName} action @param {Row[]} rows */
  async #act(action, rows) {
    const query = this.#query;
    const done = this.#selection.all
      ? await this.#bulk.matching(action, filterOf(query), describe(query) || "All jobs.")
      : await this.#bulk.selected(action, rows);
    if (!done) return;
    this.#selection.clear();
    this.#list.refresh();
    this.#view.changed();
  }

  #pages() {
    const { cursor } = this.#query;
    const older = this.#list.cursor;
    const previous = cursor === null ? undefined : newer.get(cursor);
    const move = (/** @type {string | null} */ target) =>
      navigate(urlOf(withCursor(this.#query, target, this.#list.filter)));
    const next = () => {
      if (older !== null) newer.set(older, cursor);
      move(older);
    };
    return h(
      "span",
      { class: "pages" },
      button("Newest", () => move(null), { slim: true, disabled: cursor === null }),
      button(icon("left"), () => move(previous ?? null), {
        slim: true,
        disabled: previous === undefined,
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

  /** Reload the first page, with new jobs. */
  #showNew() {
    if (this.#query.cursor !== null) return;
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

  #escape() {
    if (this.#selection.empty) /** @type {HTMLElement | null} */ (document.activeElement)?.blur();
    this.#selection.clear();
    this.#view.changed();
  }

  #shortcuts() {
    return listen({
      move: (by) => this.#move(by),
      select: (range) => {
        if (mayAct() && this.#current !== null) this.#select(this.#current, range);
      },
      open: () =>
        this.#current !== null && navigate(pageUrl(`jobs/${encodeURIComponent(this.#current)}`)),
      search: () =>
        /** @type {HTMLInputElement | null} */ (document.getElementById(SEARCH))?.select(),
      showNew: () => this.#showNew(),
      escape: () => this.#escape(),
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
        (/** @type {{ name: string }} */ task) => task.name,
      );
      this.#view.changed();
    });
    if (!may("monitor")) return [tasks];
    const queues = live.poll("/api/queues", 30, (answer) => {
      this.#known.queues = (answer?.queues ?? []).map(
        (/** @type {{ name: string }} */ queue) => queue.name,
      );
      this.#view.changed();
    });
    return [tasks, queues];
  }
}
