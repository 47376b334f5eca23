/** State filter buttons, and removable chips of the active filters. */

/** @import { State } from "../client/windlass.js" */
/** @import { JobCounts } from "./job-counts.js" */
/** @import { FilterName, JobQuery } from "./query.js" */

import { dateTime } from "../format.js";
import { navigate } from "../navigation.js";
import { h } from "../view/virtual-dom.js";
import { icon } from "../view/icons.js";
import { STATES } from "../job-state.js";
import { urlOf, withFilter, withRange } from "./query.js";

/** Filters whose fields are always visible on a wide screen. @type {FilterName[]} */
export const COMMON = ["queue", "task"];
/** @type {Partial<Record<FilterName, string>>} */
const TIMES = { createdFrom: "created from", createdTo: "created before" };
/** Filters set only by links: they have no field. @type {Partial<Record<FilterName, string>>} */
const LINK_ONLY = {
  error: "error",
  requestId: "request",
  uniqueKey: "unique key",
  retryOf: "retry of",
  flowId: "flow",
};

/** @param {JobQuery} query @param {JobCounts} counts */
export function stateChips(query, counts) {
  const chosen = query.values.state ?? [];
  const toggle = (/** @type {State} */ state) =>
    chosen.includes(state) ? chosen.filter((other) => other !== state) : [...chosen, state];
  return h(
    "div",
    { class: "states", role: "group", "aria-label": "States" },
    STATES.map((state) =>
      h(
        "button",
        {
          key: state,
          type: "button",
          class: `chip state-${state}`,
          "aria-pressed": String(chosen.includes(state)),
          onclick: () => navigate(urlOf(withFilter(query, "state", toggle(state)))),
        },
        h("span", { class: "dot" }),
        state,
        counts.has(state) && h("span", { class: "count" }, counts.text(state)),
      ),
    ),
  );
}

/** Active filters without a visible field. @param {JobQuery} query @param {boolean} open */
export function activeChips(query, open) {
  const chips = Object.entries(query.values).flatMap(([key, values]) => {
    const name = /** @type {FilterName} */ (key);
    if (name === "state" || name === "text") return [];
    if (name === "createdFrom" && query.range !== null) return []; // internal, for pagination
    const from = open && !(name in LINK_ONLY) ? 1 : 0;
    return values.slice(from).map((value, at) =>
      chip(name, value, COMMON.includes(name) && at + from === 0, () => {
        navigate(
          urlOf(
            withFilter(
              query,
              name,
              values.filter((other) => other !== value),
            ),
          ),
        );
      }),
    );
  });
  const { range } = query;
  const anyTime = () => navigate(urlOf(withRange(query, null)));
  if (range !== null && !open) chips.push(chip("createdFrom", `the last ${range}`, true, anyTime));
  return chips.length > 0 && h("div", { class: "active-filters" }, chips);
}

/**
 * @param {FilterName} name
 * @param {string} value
 * @param {boolean} phoneOnly
 * @param {() => void} remove
 */
function chip(name, value, phoneOnly, remove) {
  const label = LINK_ONLY[name] ?? TIMES[name] ?? name;
  const text = name in TIMES && !Number.isNaN(Date.parse(value)) ? dateTime(value) : value;
  return h(
    "button",
    {
      key: `${name} ${value}`,
      type: "button",
      class: `chip ${phoneOnly ? "narrow-only" : ""}`,
      "aria-label": `Remove filter ${label} ${text}`,
      onclick: remove,
    },
    h("span", { class: "soft" }, label),
    h("span", { class: "cut" }, text),
    icon("close"),
  );
}
