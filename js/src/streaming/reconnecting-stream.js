/** Event stream that reconnects. */

/** @import { ConnectionState, Log, Query, SseMessage, Timers } from "../../windlass.js" */
/** @import { Http } from "../http.js" */

import { WindlassError, connectionError } from "../errors.js";
import { SseParser } from "./sse-parser.js";
import { linkedController } from "../abort.js";
import { Backoff } from "../backoff.js";
import { Watchdog, sleep, yieldToEventLoop } from "../timers.js";

const BATCH = 64; // messages before callbacks of other tasks may run

/**
 * @typedef {object} Context
 * @property {Http} http
 * @property {Timers} timers
 * @property {Log} log
 * @property {{ attempts?: number, first?: number, cap?: number }} backoff
 * @property {number} silence milliseconds without a byte after which a connection counts as dead
 */

/**
 * Result of a message: accepted, ignored, or the last one.
 *
 * @typedef {"accepted" | "ignored" | "ended"} MessageResult
 */

/**
 * @typedef {object} StreamHandler
 * @property {() => [path: string, query: Query]} target called for each connection: cursors advance
 * @property {(message: SseMessage) => MessageResult} onMessage an exception closes the connection
 * @property {(state: ConnectionState) => void} onConnection
 */

/**
 * Read a stream to its end.
 *
 * Waits for messages and backoff delays. Guarantees one connection at a time. Reconnects after
 * 1, 2, 4, 8, 16 seconds when a connection breaks, ends early, or is silent for 2.5 keepalives.
 * Each connection starts at `target()`. An accepted message or a keepalive resets the backoff.
 * Stops with the last message, with 204, or with its signal. Throws after a permanent error
 * (401, 403, 404 …) or five failed attempts in a row. A crash leaves no state: the server notices
 * the closed connection.
 *
 * @param {Context} context
 * @param {StreamHandler} handler
 * @param {AbortSignal} signal
 * @returns {Promise<void>}
 */
export async function keepOpen(context, handler, signal) {
  const backoff = new Backoff(context.backoff);
  for (;;) {
    const error = await connect(context, handler, backoff, signal).catch((reason) => reason);
    if (error === undefined) return;
    signal.throwIfAborted();
    if (error.permanent) throw error;
    const delay = backoff.next();
    if (delay === null) throw gaveUpError(error, backoff.attempts);
    const wait = Math.max(delay, (error.retryAfter ?? 0) * 1000);
    context.log.debug(`windlass: reconnecting the stream in ${wait} ms: ${error.message}`);
    handler.onConnection({ open: false, attempt: backoff.used, wait, error });
    await sleep(context.timers, wait, signal);
  }
}

/**
 * Read one connection. Returns when the stream is complete.
 *
 * @param {Context} context
 * @param {StreamHandler} handler
 * @param {Backoff} backoff
 * @param {AbortSignal} signal
 */
async function connect({ http, timers, silence }, handler, backoff, signal) {
  const { controller, release } = linkedController(signal);
  const expired = () =>
    controller.abort(connectionError(`no data for ${silence} ms, not even a keepalive`));
  const watchdog = new Watchdog(timers, silence, expired);
  try {
    const [path, query] = handler.target();
    const reader = await http.open(path, query, controller.signal);
    if (reader === null) return;
    handler.onConnection({ open: true, attempt: backoff.used, wait: 0, error: null });
    const parser = new SseParser();
    let received = 0;
    for (;;) {
      const { done, value } = await reader.read();
      if (done) throw connectionError(`the stream ${path} ended before its last event`);
      watchdog.reset();
      for (const item of parser.push(value)) {
        const result = "comment" in item ? commentResult(item.comment) : handler.onMessage(item);
        if (result === "ended") return;
        if (result === "accepted") backoff.reset();
        if ((received += 1) % BATCH === 0) await yieldToEventLoop();
      }
    }
  } catch (error) {
    throw controller.signal.aborted ? controller.signal.reason : normalizeError(error);
  } finally {
    watchdog.stop();
    release();
    controller.abort(); // closes the connection
  }
}

/**
 * @param {string} comment
 * @returns {MessageResult}
 */
const commentResult = (comment) => (comment.startsWith("keepalive") ? "accepted" : "ignored");

/** @param {unknown} error */
function normalizeError(error) {
  if (error instanceof WindlassError) return error;
  return connectionError(`the stream was interrupted (${/** @type {Error} */ (error).message})`, error);
}

/**
 * @param {WindlassError} error
 * @param {number} attempts
 */
function gaveUpError(error, attempts) {
  const detail = `gave up after ${attempts} failed attempts; last error: ${error.detail}`;
  const { title, advice, status } = error;
  return new WindlassError(
    { title, detail, advice, status, code: "gave_up", permanent: true },
    { cause: error },
  );
}
