/** How many jobs of a flow stand where, in words. */

/** @import { State } from "../client/windlass.js" */

import { number } from "../format.js";
import { STATES } from "../view/parts.js";

/** @param {Partial<Record<State, number>>} counts */
export const counted = (counts) =>
  STATES.filter((state) => counts[state])
    .map((state) => `${number(counts[state] ?? 0)} ${state}`)
    .join(", ") || "none";
