/** Type-checker path of the client module, as in windlass.d.ts. */

export * from "../../../../../../../js/src/streaming/job-listener.js";
