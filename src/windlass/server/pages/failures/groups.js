/** What failed, by task and error. Groups keep their places: numbers change, rows do not move. */

/** @import { FailureGroup, Failures } from "../client/windlass.js" */
/** @import { Since, Wanted } from "../jobs/wanted.js" */

/** What the server takes for a number, by which errors may differ and be alike. */
const NUMBER = /[0-9a-fA-F-]*\d[0-9a-fA-F-]*/g;

/** @typedef {FailureGroup & { past: boolean }} Group `past`: not since then any more */

export class Groups {
  /** @type {Group[] | null} */
  shown = null;
  /** @type {Failures | null} */
  answer = null;

  /** @param {Failures} answer */
  take(answer) {
    const found = new Map(answer.groups.map((one) => [one.key, one]));
    const kept = (this.shown ?? []).map((old) => {
      const now = found.get(old.key);
      found.delete(old.key);
      return now ? { ...now, past: false } : { ...old, past: true };
    });
    const added = [...found.values()].map((one) => ({ ...one, past: false }));
    this.shown = [...kept, ...added];
    this.answer = answer;
  }

  /** Whether the most frequent are not first any more, or some are of the past. */
  get stirred() {
    const shown = this.shown ?? /** @type {Group[]} */ ([]);
    return shown.some((one, at) => one.past || (at > 0 && one.count > shown[at - 1].count));
  }

  sort() {
    this.shown = (this.shown ?? []).filter((one) => !one.past).sort((a, b) => b.count - a.count);
  }

  clear() {
    this.shown = null;
    this.answer = null;
  }

  /**
   * What lists the jobs of a group. Of several with the same code, a part of the message without
   * numbers tells them apart, as far as it can.
   *
   * @param {Group} group
   * @param {Since} since
   * @returns {Wanted}
   */
  wanted({ task, code, message }, since) {
    const alike = (this.shown ?? []).filter((one) => one.task === task && one.code === code);
    const part = alike.length > 1 ? longest(message ?? "") : "";
    /** @type {Wanted["values"]} */
    const values = { state: ["failed"], task: [task] };
    if (code) values.error = [code];
    if (part) values.text = [part];
    return { values, since, cursor: null };
  }
}

/** @param {string} message */
const longest = (message) =>
  message
    .split(NUMBER)
    .reduce((best, one) => (one.trim().length > best.length ? one.trim() : best), "");
