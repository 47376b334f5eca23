/** Time series of attempts, queue wait and run time, from the statistics of the server. */

/** @import { Stats } from "../client/windlass.js" */

/** @typedef {"hour" | "day"} Range */

/** Name, length and column width of each range, in seconds. */
export const RANGES = /** @type {const} */ ({
  hour: { name: "Last hour", length: 3600, step: 60 },
  day: { name: "Last day", length: 86_400, step: 1800 },
});

/**
 * Return the statistics path of a range. It changes only with a new column, so that all tabs share
 * one poll.
 *
 * @param {Range} range
 * @param {number} now milliseconds
 */
export function statsPath(range, now) {
  const { length, step } = RANGES[range];
  const end = Math.floor(now / 1000 / step) * step + step;
  const since = new Date((end - length) * 1000).toISOString().replace(".000", "");
  return `/api/stats?by=queue&step=${step}&since=${encodeURIComponent(since)}`;
}

/**
 * @typedef {object} AttemptSeries
 * @property {number[]} times
 * @property {number[]} succeeded
 * @property {number[]} failed
 * @property {number[]} retried
 * @property {number[]} canceled
 * @property {(number | null)[]} wait mean queue wait in seconds
 * @property {(number | null)[]} run mean run time in seconds
 */

/** Series of each outcome in the statistics. */
const OUTCOME_SERIES = /** @type {const} */ ({
  succeeded: "succeeded",
  failed: "failed",
  retrying: "retried",
  canceled: "canceled",
});

/**
 * @param {Stats} stats
 * @param {Range} range
 * @param {string | null} [queue] default: all
 * @returns {AttemptSeries}
 */
export function attemptSeries(stats, range, queue = null) {
  const { length, step } = RANGES[range];
  const count = length / step;
  const first = new Date(stats.since).getTime();
  const times = Array.from({ length: count }, (_, index) => first + index * step * 1000);
  const zeros = () => /** @type {number[]} */ (new Array(count).fill(0));
  const found = { succeeded: zeros(), failed: zeros(), retried: zeros(), canceled: zeros() };
  const [ended, waited, ran] = [zeros(), zeros(), zeros()];
  for (const row of stats.rows) {
    if (queue !== null && row.queue !== queue) continue;
    const index = Math.floor((new Date(row.at).getTime() - first) / 1000 / step);
    const name = OUTCOME_SERIES[/** @type {keyof typeof OUTCOME_SERIES} */ (row.outcome)];
    if (index < 0 || index >= count || name === undefined) continue;
    found[name][index] += row.count;
    ended[index] += row.count;
    waited[index] += row.count * row.meanWait;
    ran[index] += row.count * row.meanRun;
  }
  const mean = (/** @type {number[]} */ sums) =>
    sums.map((sum, index) => (ended[index] > 0 ? sum / ended[index] : null));
  return { times, ...found, wait: mean(waited), run: mean(ran) };
}

/** @param {number[]} values */
export const sum = (values) => values.reduce((total, value) => total + value, 0);

/**
 * Return the share of failed and retried attempts, or null without attempts.
 *
 * @param {AttemptSeries} series
 */
export function errorRate(series) {
  const errors = sum(series.failed) + sum(series.retried);
  const total = errors + sum(series.succeeded) + sum(series.canceled);
  return total > 0 ? errors / total : null;
}
