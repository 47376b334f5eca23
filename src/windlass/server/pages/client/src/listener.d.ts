/** As for windlass.d.ts. */

export * from "../../../../../../js/src/listener.js";
