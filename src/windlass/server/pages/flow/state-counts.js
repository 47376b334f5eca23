/** Job counts of a flow as text. */

/** @import { State } from "../client/windlass.js" */

import { number } from "../format.js";
import { STATES } from "../job-state.js";

/** @param {Partial<Record<State, number>>} counts */
export const stateCountsText = (counts) =>
  STATES.filter((state) => counts[state])
    .map((state) => `${number(counts[state] ?? 0)} ${state}`)
    .join(", ") || "none";
