/** From what the server counted to what charts and tiles show. */

/** @import { Queue, Stats } from "../client/windlass.js" */

/** @typedef {"hour" | "day"} Range */

/** How long a range is, and how long each of its columns, in seconds. */
export const RANGES = /** @type {const} */ ({
  hour: { name: "Last hour", long: 3600, step: 60 },
  day: { name: "Last day", long: 86_400, step: 1800 },
});

/**
 * The address of the numbers for a range: it changes with each new column, and not before, so that
 * all tabs ask for the same.
 *
 * @param {Range} range
 * @param {number} now milliseconds
 */
export function statsPath(range, now) {
  const { long, step } = RANGES[range];
  const end = Math.floor(now / 1000 / step) * step + step;
  const since = new Date((end - long) * 1000).toISOString().replace(".000", "");
  return `/api/stats?by=queue&step=${step}&since=${encodeURIComponent(since)}`;
}

/**
 * @typedef {object} Timeline
 * @property {number[]} times
 * @property {number[]} succeeded
 * @property {number[]} failed
 * @property {number[]} retried
 * @property {number[]} canceled
 * @property {(number | null)[]} wait mean seconds in line
 * @property {(number | null)[]} run mean seconds at work
 */

const PLACES = /** @type {const} */ ({
  succeeded: "succeeded",
  failed: "failed",
  retrying: "retried",
  canceled: "canceled",
});

/**
 * @param {Stats} stats
 * @param {Range} range
 * @param {string | null} [queue] of all, if not given
 * @returns {Timeline}
 */
export function timeline(stats, range, queue = null) {
  const { long, step } = RANGES[range];
  const count = long / step;
  const first = new Date(stats.since).getTime();
  const times = Array.from({ length: count }, (_, place) => first + place * step * 1000);
  const zeros = () => /** @type {number[]} */ (new Array(count).fill(0));
  const found = { succeeded: zeros(), failed: zeros(), retried: zeros(), canceled: zeros() };
  const [ended, waited, ran] = [zeros(), zeros(), zeros()];
  for (const line of stats.lines) {
    if (queue !== null && line.queue !== queue) continue;
    const place = Math.floor((new Date(line.at).getTime() - first) / 1000 / step);
    const name = PLACES[/** @type {keyof typeof PLACES} */ (line.outcome)];
    if (place < 0 || place >= count || name === undefined) continue;
    found[name][place] += line.count;
    ended[place] += line.count;
    waited[place] += line.count * line.meanWait;
    ran[place] += line.count * line.meanRun;
  }
  const mean = (/** @type {number[]} */ sums) =>
    sums.map((sum, place) => (ended[place] > 0 ? sum / ended[place] : null));
  return { times, ...found, wait: mean(waited), run: mean(ran) };
}

/** @param {number[]} values */
export const sum = (values) => values.reduce((total, value) => total + value, 0);

/**
 * Attempts that ended badly, as a part of all that ended; null if none did.
 *
 * @param {Timeline} line
 */
export function failureRate(line) {
  const bad = sum(line.failed) + sum(line.retried);
  const all = bad + sum(line.succeeded) + sum(line.canceled);
  return all > 0 ? bad / all : null;
}

/** @param {Queue} queue */
export const waiting = (queue) => queue.counts.queued ?? 0;

/**
 * Whether a number is at least so, and not exactly.
 *
 * @param {Queue[]} queues
 * @param {"queued" | "running"} state
 */
export const isCapped = (queues, state) => queues.some((one) => one.capped.includes(state));
