/** The Windlass client, for browsers and Node: see README.md, and windlass.d.ts for the types. */

export { Windlass } from "./src/client.js";
export { WindlassError } from "./src/errors.js";
export { SseParser } from "./src/sse.js";
