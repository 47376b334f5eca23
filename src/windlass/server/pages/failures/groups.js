/** Failure groups by task and error. Groups keep their order while their counts change. */

/** @import { FailureGroup, Failures } from "../client/windlass.js" */
/** @import { JobQuery, TimeRange } from "../jobs/query.js" */

/** Numbers, which the server ignores when it groups messages. */
const NUMBER = /[0-9a-fA-F-]*\d[0-9a-fA-F-]*/g;

/** @typedef {FailureGroup & { outdated: boolean }} ShownGroup `outdated`: no longer in the range */

export class FailureGroups {
  /** @type {ShownGroup[] | null} */
  shown = null;
  /** @type {Failures | null} */
  answer = null;

  /** @param {Failures} answer */
  update(answer) {
    const found = new Map(answer.groups.map((group) => [group.key, group]));
    const kept = (this.shown ?? []).map((old) => {
      const now = found.get(old.key);
      found.delete(old.key);
      return now ? { ...now, outdated: false } : { ...old, outdated: true };
    });
    const added = [...found.values()].map((group) => ({ ...group, outdated: false }));
    this.shown = [...kept, ...added];
    this.answer = answer;
  }

  /** Whether groups are not sorted by count, or some are outdated. */
  get outOfOrder() {
    const shown = this.shown ?? /** @type {ShownGroup[]} */ ([]);
    return shown.some(
      (group, at) => group.outdated || (at > 0 && group.count > shown[at - 1].count),
    );
  }

  sort() {
    this.shown = (this.shown ?? [])
      .filter((group) => !group.outdated)
      .sort((a, b) => b.count - a.count);
  }

  clear() {
    this.shown = null;
    this.answer = null;
  }

  /**
   * Return the job query of a group. The longest part of the message without numbers distinguishes
   * groups with the same code.
   *
   * @param {ShownGroup} group
   * @param {TimeRange} range
   * @returns {JobQuery}
   */
  query({ task, code, message }, range) {
    const sameCode = (this.shown ?? []).filter(
      (group) => group.task === task && group.code === code,
    );
    const part = sameCode.length > 1 ? longestPart(message ?? "") : "";
    /** @type {JobQuery["values"]} */
    const values = { state: ["failed"], task: [task] };
    if (code) values.error = [code];
    if (part) values.text = [part];
    return { values, range, cursor: null };
  }
}

/** @param {string} message */
const longestPart = (message) =>
  message
    .split(NUMBER)
    .reduce((best, part) => (part.trim().length > best.length ? part.trim() : best), "");
