/**
 * The same done to many jobs: asked for once, with the number; then done, with what is left told.
 */

/** @import { ActionAnswer, ActionFilter, Count, Filter, JobSummary } from "../client/windlass.js" */
/** @import { Given } from "../view/dom.js" */
/** @import { Verb } from "./verbs.js" */

import { number, plural } from "../format.js";
import { live } from "../live/tab.js";
import { api, person } from "../session.js";
import { confirm } from "../view/dialog.js";
import { h } from "../view/dom.js";
import { CAN, jobLink } from "../view/parts.js";
import { toast } from "../view/toast.js";
import { amount } from "./counts.js";
import { narrowed, VERBS } from "./verbs.js";

const STEP = 100; // jobs of one request
const TOLD = 5; // refusals that are told one by one

export class Work {
  done = 0;
  refusedCount = 0;
  /** Of those that were chosen, how many are no longer there. */
  gone = 0;
  /** @type {{ id: string, detail: string }[]} */
  refused = [];
  #controller = new AbortController();
  #who = person();

  /** @param {Verb} verb @param {number | null} total null: nobody knows */
  constructor(verb, total) {
    this.verb = verb;
    this.total = total;
  }

  /** In the name of whoever asked for it, not of the next who signs in here. */
  get theirs() {
    return person() === this.#who;
  }

  get goesOn() {
    return this.theirs && !this.signal.aborted;
  }

  get percent() {
    const seen = this.done + this.refusedCount + this.gone;
    return this.total ? Math.min(100, (100 * seen) / this.total) : 0;
  }

  get signal() {
    return this.#controller.signal;
  }

  /** What was begun is finished; no more is begun. */
  stop() {
    this.#controller.abort();
  }

  /** @param {ActionAnswer} answer */
  take({ matched, done, refused }) {
    this.done += done;
    this.refusedCount += matched - done;
    this.refused.push(...refused.slice(0, TOLD - this.refused.length));
  }
}

export class Worker {
  /** What is being done. @type {Work | null} */
  work = null;
  /** Something is counted, asked or done: whoever clicks twice means it once. */
  busy = false;
  #changed;

  /** @param {() => void} changed */
  constructor(changed) {
    this.#changed = changed;
  }

  /** To these jobs. Whether it was done. @param {Verb} verb @param {JobSummary[]} jobs */
  some(verb, jobs) {
    return this.#once(() => this.#some(verb, jobs));
  }

  /**
   * To all that match. Whether it was done.
   *
   * @param {Verb} verb
   * @param {Filter} given
   * @param {(count: number) => Given} words
   */
  all(verb, given, words) {
    return this.#once(() => this.#all(verb, given, words));
  }

  /**
   * To the jobs that are found now. Whether it was done.
   *
   * @param {Verb} verb
   * @param {() => Promise<string[]>} find their ids
   * @param {Given} words
   */
  these(verb, find, words) {
    return this.#once(() => this.#these(verb, find, words));
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

  /** @param {Verb} verb @param {JobSummary[]} jobs */
  async #some(verb, jobs) {
    const able = jobs.filter((job) => CAN[verb](job));
    const rest = jobs.length - able.length;
    const left = `${plural(rest, "other")} cannot be, and ${rest === 1 ? "is" : "are"} left alone.`;
    const means = VERBS[verb].means + (rest > 0 ? ` ${left}` : "");
    if (!(await agreed(verb, plural(able.length, "job"), means))) return false;
    const ids = able.map((job) => job.id);
    return this.#do(new Work(verb, ids.length), (work) => this.#each(work, ids));
  }

  /** @param {Verb} verb @param {() => Promise<string[]>} find @param {Given} words */
  async #these(verb, find, words) {
    /** @type {string[]} */
    let ids;
    try {
      ids = await find();
    } catch (error) {
      toast(/** @type {Error} */ (error).message, "failed");
      return false;
    }
    if (ids.length === 0) {
      toast(`There is nothing to ${verb} now.`, "queued");
      return false;
    }
    const text = [h("p", null, words), h("p", null, VERBS[verb].means)];
    if (!(await agreed(verb, plural(ids.length, "job"), text))) return false;
    return this.#do(new Work(verb, ids.length), (work) => this.#each(work, ids));
  }

  /** @param {Verb} verb @param {Filter} given @param {(count: number) => Given} words */
  async #all(verb, given, words) {
    const filter = narrowed(given, verb);
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
      toast(`There is nothing to ${verb} now.`, "queued");
      return false;
    }
    const text = [h("p", null, words(count)), h("p", null, VERBS[verb].means)];
    if (!(await agreed(verb, amount(found), text))) return false;
    return this.#do(new Work(verb, capped ? null : count), (work) => this.#pages(work, filter));
  }

  /** @param {Work} work @param {(work: Work) => Promise<void>} run */
  async #do(work, run) {
    this.work = work;
    this.#changed();
    try {
      await run(work);
      tell(work);
    } catch (error) {
      tell(work, /** @type {Error} */ (error).message);
    }
    this.work = null;
    live.refresh("/api/jobs/count");
    return true;
  }

  /**
   * Waits for: answers. Guarantees: each job is asked for once. Stops: when all were asked for, or
   * somebody says so. A crash leaves those that were not asked for as they were.
   *
   * @param {Work} work
   * @param {string[]} ids
   */
  async #each(work, ids) {
    for (let from = 0; from < ids.length && work.goesOn; from += STEP) {
      const id = ids.slice(from, from + STEP);
      const answer = await api.actions({ action: work.verb, filter: { id } });
      work.take(answer);
      work.gone += id.length - answer.matched;
      this.#changed();
    }
  }

  /**
   * The same, page by page: the server goes from the newest to the oldest, and passes no job twice.
   * Not more than was agreed to, though more may match by now.
   *
   * @param {Work} work
   * @param {ActionFilter} filter
   */
  async #pages(work, filter) {
    /** @type {string | null} */
    let cursor = null;
    let left = work.total ?? Infinity;
    do {
      const limit = Math.min(STEP, left);
      const asked = { action: work.verb, filter: { ...filter, limit }, cursor };
      const answer = await api.actions(asked);
      work.take(answer);
      left -= answer.matched;
      cursor = answer.cursor;
      this.#changed();
    } while (cursor !== null && left > 0 && work.goesOn);
  }
}

/** @param {Verb} verb @param {string} many @param {Given} text */
function agreed(verb, many, text) {
  const { name, danger } = VERBS[verb];
  return confirm({ title: `${name} ${many}?`, text, action: `${name} ${many}`, danger });
}

/** @param {Work} work @param {string} [wrong] what ended it too soon */
function tell({ verb, done, refusedCount, refused, gone, signal, theirs }, wrong) {
  if (!theirs) return; // it is for nobody who is here now
  const stopped = signal.aborted ? " Stopped." : "";
  const summary = `${VERBS[verb].done} ${plural(done, "job")}.${stopped}`;
  if (refusedCount === 0 && gone === 0 && wrong === undefined) {
    toast(summary, "succeeded");
    return;
  }
  const more = refusedCount - Math.min(refused.length, TOLD);
  toast(
    [
      h("p", null, summary, refusedCount > 0 && ` ${number(refusedCount)} refused:`),
      h(
        "ul",
        { class: "refused" },
        refused.slice(0, TOLD).map(({ id, detail }) => h("li", null, jobLink(id), " ", detail)),
        more > 0 && h("li", null, `and ${number(more)} more`),
        gone > 0 && h("li", null, `${plural(gone, "job")} no longer there`),
      ),
      wrong !== undefined && h("p", null, wrong),
    ],
    "failed",
  );
}
