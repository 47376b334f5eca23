/**
 * Filters that are pressed, not written: states; and those that are set, each with a way to drop
 * it.
 */

/** @import { State } from "../client/windlass.js" */
/** @import { Counts } from "./counts.js" */
/** @import { Name, Wanted } from "./wanted.js" */

import { moment } from "../format.js";
import { go } from "../router.js";
import { h } from "../view/dom.js";
import { icon } from "../view/icons.js";
import { STATES } from "../view/parts.js";
import { address, changed, changedSince } from "./wanted.js";

/** Those whose fields are always seen on a wide screen. @type {Name[]} */
export const COMMON = ["queue", "task"];
/** @type {Partial<Record<Name, string>>} */
const TIMES = { createdFrom: "created from", createdTo: "created before" };
/** What only links say: it can be taken away, not written. @type {Partial<Record<Name, string>>} */
const GIVEN = {
  error: "error",
  requestId: "request",
  uniqueKey: "unique key",
  retryOf: "retry of",
  flowId: "flow",
};

/** @param {Wanted} wanted @param {Counts} counts */
export function stateChips(wanted, counts) {
  const chosen = wanted.values.state ?? [];
  const choose = (/** @type {State} */ state) =>
    chosen.includes(state) ? chosen.filter((one) => one !== state) : [...chosen, state];
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
          onclick: () => go(address(changed(wanted, "state", choose(state)))),
        },
        h("span", { class: "dot" }),
        state,
        counts.has(state) && h("span", { class: "count" }, counts.text(state)),
      ),
    ),
  );
}

/** What is set and not in a field that is seen. @param {Wanted} wanted @param {boolean} open */
export function givenChips(wanted, open) {
  const chips = Object.entries(wanted.values).flatMap(([key, values]) => {
    const name = /** @type {Name} */ (key);
    if (name === "state" || name === "text") return [];
    if (name === "createdFrom" && wanted.since !== null) return []; // of a page
    const from = open && !(name in GIVEN) ? 1 : 0;
    return values.slice(from).map((value, at) =>
      chip(name, value, COMMON.includes(name) && at + from === 0, () => {
        go(
          address(
            changed(
              wanted,
              name,
              values.filter((one) => one !== value),
            ),
          ),
        );
      }),
    );
  });
  const { since } = wanted;
  const whenever = () => go(address(changedSince(wanted, null)));
  if (since !== null && !open) chips.push(chip("createdFrom", `the last ${since}`, true, whenever));
  return chips.length > 0 && h("div", { class: "given" }, chips);
}

/**
 * @param {Name} name
 * @param {string} value
 * @param {boolean} narrow only on a phone
 * @param {() => void} remove
 */
function chip(name, value, narrow, remove) {
  const label = GIVEN[name] ?? TIMES[name] ?? name;
  const text = name in TIMES && !Number.isNaN(Date.parse(value)) ? moment(value) : value;
  return h(
    "button",
    {
      key: `${name} ${value}`,
      type: "button",
      class: `chip ${narrow ? "narrow-only" : ""}`,
      "aria-label": `Remove the filter ${label} ${text}`,
      onclick: remove,
    },
    h("span", { class: "soft" }, label),
    h("span", { class: "cut" }, text),
    icon("close"),
  );
}
