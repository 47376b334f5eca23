/** Checked by tsc only: the sources match the declared types. */

import { Windlass } from "../src/client.js";
import { WindlassError } from "../src/errors.js";
import { SseParser } from "../src/streaming/sse-parser.js";

/** @type {typeof import("../windlass.js").Windlass} */
export const declaredClient = Windlass;
/** @type {typeof import("../windlass.js").WindlassError} */
export const declaredError = WindlassError;
/** @type {typeof import("../windlass.js").SseParser} */
export const declaredParser = SseParser;
