/** Actions on many jobs: confirmation, requests in batches, and a summary toast. */

/** @import { BulkActionFilter, BulkActionResult, Count } from "../client/windlass.js" */
/** @import { Filter, JobSummary } from "../client/windlass.js" */
/** @import { Renderable } from "../view/virtual-dom.js" */
/** @import { ActionName } from "./actions.js" */

import { api } from "../api.js";
import { number, plural } from "../format.js";
import { live } from "../live/live.js";
import { identityKey } from "../session.js";
import { confirm } from "../view/dialog.js";
import { h } from "../view/virtual-dom.js";
import { jobLink } from "../view/components.js";
import { CAN } from "../job-state.js";
import { toast } from "../view/toast.js";
import { countText } from "./job-counts.js";
import { applicableFilter, ACTIONS } from "./actions.js";

const BATCH = 100; // jobs per request
const MAX_LISTED = 5; // refused jobs listed in the toast

export class BulkAction {
  done = 0;
  refusedCount = 0;
  /** Number of selected jobs that no longer exist. */
  gone = 0;
  /** @type {{ id: string, detail: string }[]} */
  refused = [];
  #controller = new AbortController();
  #identity = identityKey();

  /** @param {ActionName} action @param {number | null} total null: unknown */
  constructor(action, total) {
    this.action = action;
    this.total = total;
  }

  /** Whether the user that started it is still signed in. */
  get sameUser() {
    return identityKey() === this.#identity;
  }

  get continues() {
    return this.sameUser && !this.signal.aborted;
  }

  get percent() {
    const seen = this.done + this.refusedCount + this.gone;
    return this.total ? Math.min(100, (100 * seen) / this.total) : 0;
  }

  get signal() {
    return this.#controller.signal;
  }

  /** Send no further requests. */
  stop() {
    this.#controller.abort();
  }

  /** @param {BulkActionResult} answer */
  add({ matched, done, refused }) {
    this.done += done;
    this.refusedCount += matched - done;
    this.refused.push(...refused.slice(0, MAX_LISTED - this.refused.length));
  }
}

export class BulkActions {
  /** @type {BulkAction | null} */
  running = null;
  /** Counting, confirming or running: ignores further clicks. */
  busy = false;
  #changed;

  /** @param {() => void} changed */
  constructor(changed) {
    this.#changed = changed;
  }

  /** Act on these jobs. Returns whether it ran. @param {ActionName} action @param {JobSummary[]} jobs */
  selected(action, jobs) {
    return this.#once(() => this.#selected(action, jobs));
  }

  /**
   * Act on all matching jobs. Returns whether it ran.
   *
   * @param {ActionName} action
   * @param {Filter} filter
   * @param {Renderable} description
   */
  matching(action, filter, description) {
    return this.#once(() => this.#matching(action, filter, description));
  }

  /**
   * Act on the jobs that `find` returns. Returns whether it ran.
   *
   * @param {ActionName} action
   * @param {() => Promise<string[]>} find their ids
   * @param {Renderable} description
   */
  found(action, find, description) {
    return this.#once(() => this.#found(action, find, description));
  }

  /** @param {() => Promise<boolean>} call */
  async #once(call) {
    if (this.busy) return false;
    this.busy = true;
    this.#changed();
    try {
      return await call();
    } finally {
      this.busy = false;
      this.#changed();
    }
  }

  /** @param {ActionName} action @param {JobSummary[]} jobs */
  async #selected(action, jobs) {
    const applicable = jobs.filter((job) => CAN[action](job));
    const rest = jobs.length - applicable.length;
    const skipped = `${plural(rest, "job is", "jobs are")} skipped (action not applicable).`;
    const text = ACTIONS[action].description + (rest > 0 ? ` ${skipped}` : "");
    if (!(await confirmed(action, plural(applicable.length, "job"), text))) return false;
    const ids = applicable.map((job) => job.id);
    return this.#run(new BulkAction(action, ids.length), (work) => this.#each(work, ids));
  }

  /** @param {ActionName} action @param {() => Promise<string[]>} find @param {Renderable} description */
  async #found(action, find, description) {
    /** @type {string[]} */
    let ids;
    try {
      ids = await find();
    } catch (error) {
      toast(/** @type {Error} */ (error).message, "failed");
      return false;
    }
    if (ids.length === 0) {
      toast(`No jobs to ${action}.`, "queued");
      return false;
    }
    const text = [h("p", null, description), h("p", null, ACTIONS[action].description)];
    if (!(await confirmed(action, plural(ids.length, "job"), text))) return false;
    return this.#run(new BulkAction(action, ids.length), (work) => this.#each(work, ids));
  }

  /** @param {ActionName} action @param {Filter} given @param {Renderable} description */
  async #matching(action, given, description) {
    const filter = applicableFilter(given, action);
    /** @type {Count} */
    let found;
    try {
      found = await api.count(filter);
    } catch (error) {
      toast(/** @type {Error} */ (error).message, "failed");
      return false;
    }
    const { count, capped } = found;
    if (count === 0 && !capped) {
      toast(`No jobs to ${action}.`, "queued");
      return false;
    }
    const text = [h("p", null, description), h("p", null, ACTIONS[action].description)];
    if (!(await confirmed(action, countText(found), text))) return false;
    return this.#run(new BulkAction(action, capped ? null : count), (work) =>
      this.#pages(work, filter),
    );
  }

  /** @param {BulkAction} work @param {(work: BulkAction) => Promise<void>} send */
  async #run(work, send) {
    this.running = work;
    this.#changed();
    try {
      await send(work);
      report(work);
    } catch (error) {
      report(work, /** @type {Error} */ (error).message);
    }
    this.running = null;
    live.refresh("/api/jobs/count");
    return true;
  }

  /**
   * Send the jobs in batches, each job once. Stops after the last batch, or when stopped. A crash
   * leaves the remaining jobs unchanged.
   *
   * @param {BulkAction} work
   * @param {string[]} ids
   */
  async #each(work, ids) {
    for (let from = 0; from < ids.length && work.continues; from += BATCH) {
      const id = ids.slice(from, from + BATCH);
      const answer = await api.actions({ action: work.action, filter: { id } });
      work.add(answer);
      work.gone += id.length - answer.matched;
      this.#changed();
    }
  }

  /**
   * Act on matching jobs page by page, from the newest to the oldest, each job once. Never on more
   * jobs than confirmed, though more may match by now.
   *
   * @param {BulkAction} work
   * @param {BulkActionFilter} filter
   */
  async #pages(work, filter) {
    /** @type {string | null} */
    let cursor = null;
    let left = work.total ?? Infinity;
    do {
      const limit = Math.min(BATCH, left);
      const answer = await api.actions({
        action: work.action,
        filter: { ...filter, limit },
        cursor,
      });
      work.add(answer);
      left -= answer.matched;
      cursor = answer.cursor;
      this.#changed();
    } while (cursor !== null && left > 0 && work.continues);
  }
}

/** @param {ActionName} action @param {string} amount @param {Renderable} text */
function confirmed(action, amount, text) {
  const { name, danger } = ACTIONS[action];
  return confirm({ title: `${name} ${amount}?`, text, action: `${name} ${amount}`, danger });
}

/** @param {BulkAction} work @param {string} [error] that ended it early */
function report({ action, done, refusedCount, refused, gone, signal, sameUser }, error) {
  if (!sameUser) return; // another user is signed in now
  const stopped = signal.aborted ? " Stopped." : "";
  const summary = `${ACTIONS[action].done} ${plural(done, "job")}.${stopped}`;
  if (refusedCount === 0 && gone === 0 && error === undefined) {
    toast(summary, "succeeded");
    return;
  }
  const more = refusedCount - Math.min(refused.length, MAX_LISTED);
  toast(
    [
      h("p", null, summary, refusedCount > 0 && ` ${number(refusedCount)} refused:`),
      h(
        "ul",
        { class: "refused" },
        refused
          .slice(0, MAX_LISTED)
          .map(({ id, detail }) => h("li", null, jobLink(id), " ", detail)),
        more > 0 && h("li", null, `and ${number(more)} more`),
        gone > 0 && h("li", null, `${plural(gone, "job")} no longer exist${gone === 1 ? "s" : ""}`),
      ),
      error !== undefined && h("p", null, error),
    ],
    "failed",
  );
}
