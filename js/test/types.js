/** No test runs this; the type checker holds what the sources are against what is declared. */

import { Windlass } from "../src/client.js";
import { WindlassError } from "../src/errors.js";
import { SseParser } from "../src/sse.js";

/** @type {typeof import("../windlass.js").Windlass} */
export const declaredClient = Windlass;
/** @type {typeof import("../windlass.js").WindlassError} */
export const declaredError = WindlassError;
/** @type {typeof import("../windlass.js").SseParser} */
export const declaredParser = SseParser;
