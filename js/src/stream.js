/** A stream that is kept open, whatever happens to its connections. */

/** @import { ConnectionState, Log, Query, SseMessage, Timers } from "../windlass.js" */
/** @import { Http } from "./http.js" */

import { WindlassError, lost } from "./errors.js";
import { SseParser } from "./sse.js";
import { Backoff, Watchdog, sleep, tied, turn } from "./waiting.js";

const AT_A_TIME = 64; // messages, before those who listen have their turn

/**
 * @typedef {object} Context
 * @property {Http} http
 * @property {Timers} timers
 * @property {Log} log
 * @property {{ attempts?: number, first?: number, cap?: number }} backoff
 * @property {number} silence milliseconds without a byte after which a connection is taken for dead
 */

/**
 * What comes of a message: it counts, it does not, or it was the last.
 *
 * @typedef {"taken" | "ignored" | "ended"} Verdict
 */

/**
 * @typedef {object} Purpose
 * @property {() => [path: string, query: Query]} where asked at each connection: cursors move
 * @property {(message: SseMessage) => Verdict} take what it throws breaks the connection
 * @property {(state: ConnectionState) => void} changed
 */

/**
 * Waits for: messages, and for its time to come back. Guarantees: one connection at a time; a new
 * one after 1, 2, 4, 8, 16 seconds when it breaks, ends early, or brings no byte for 2.5
 * keepalives; what comes on it begins where `where` says. A message that counts, and a keepalive,
 * begin the five attempts anew. Stops: with the last message, with 204, with its signal, by an
 * error when the server refuses for good (401, 403, 404 …) or five attempts in a row brought
 * nothing. A crash leaves nothing: the server notices that the reader is gone.
 *
 * @param {Context} context
 * @param {Purpose} purpose
 * @param {AbortSignal} signal
 * @returns {Promise<void>}
 */
export async function keepOpen(context, purpose, signal) {
  const backoff = new Backoff(context.backoff);
  for (;;) {
    const error = await connect(context, purpose, backoff, signal).catch((reason) => reason);
    if (error === undefined) return;
    signal.throwIfAborted();
    if (error.permanent) throw error;
    const delay = backoff.next();
    if (delay === null) throw givenUp(error, backoff.attempts);
    const wait = Math.max(delay, (error.retryAfter ?? 0) * 1000);
    context.log.debug(`windlass: the stream is asked for again in ${wait} ms: ${error.message}`);
    purpose.changed({ open: false, attempt: backoff.used, wait, error });
    await sleep(context.timers, wait, signal);
  }
}

/**
 * One connection, to its end. Returns when there is no more to come, ever.
 *
 * @param {Context} context
 * @param {Purpose} purpose
 * @param {Backoff} backoff
 * @param {AbortSignal} signal
 */
async function connect({ http, timers, silence }, purpose, backoff, signal) {
  const { controller, release } = tied(signal);
  const dead = () => controller.abort(lost(`nothing came for ${silence} ms, not even a keepalive`));
  const dog = new Watchdog(timers, silence, dead);
  try {
    const [path, query] = purpose.where();
    const reader = await http.open(path, query, controller.signal);
    if (reader === null) return;
    purpose.changed({ open: true, attempt: backoff.used, wait: 0, error: null });
    const parser = new SseParser();
    let taken = 0;
    for (;;) {
      const { done, value } = await reader.read();
      if (done) throw lost(`the stream ${path} ended before its last event`);
      dog.pat();
      for (const said of parser.push(value)) {
        const verdict = "comment" in said ? beat(said.comment) : purpose.take(said);
        if (verdict === "ended") return;
        if (verdict === "taken") backoff.reset();
        if ((taken += 1) % AT_A_TIME === 0) await turn();
      }
    }
  } catch (error) {
    throw controller.signal.aborted ? controller.signal.reason : explained(error);
  } finally {
    dog.stop();
    release();
    controller.abort(); // and with it what is left of the connection
  }
}

/**
 * @param {string} comment
 * @returns {Verdict}
 */
const beat = (comment) => (comment.startsWith("keepalive") ? "taken" : "ignored");

/** @param {unknown} error */
function explained(error) {
  if (error instanceof WindlassError) return error;
  return lost(`the stream broke (${/** @type {Error} */ (error).message})`, error);
}

/**
 * @param {WindlassError} error
 * @param {number} attempts
 */
function givenUp(error, attempts) {
  const detail = `${attempts} attempts in a row brought nothing; the last: ${error.detail}`;
  const { title, advice, status } = error;
  return new WindlassError(
    { title, detail, advice, status, code: "gave_up", permanent: true },
    { cause: error },
  );
}
