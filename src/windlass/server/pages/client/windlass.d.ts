/** For the type checker only: the server mounts the client of js/ at this path. */

export * from "../../../../../js/windlass.js";
