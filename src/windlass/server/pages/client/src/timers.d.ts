/** Type-checker path of the client module, as in windlass.d.ts. */

export * from "../../../../../../js/src/timers.js";
