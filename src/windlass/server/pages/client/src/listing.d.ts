/** As for windlass.d.ts. */

export * from "../../../../../../js/src/listing.js";
