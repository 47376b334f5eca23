/** The server has the client here, and the source tree has it there: for the type checker only. */

export * from "../../../../../js/windlass.js";
