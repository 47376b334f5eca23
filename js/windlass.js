/** Entry point of the Windlass client for browsers and Node. Types are in windlass.d.ts. */

export { Windlass } from "./src/client.js";
export { WindlassError } from "./src/errors.js";
export { SseParser } from "./src/streaming/sse-parser.js";
