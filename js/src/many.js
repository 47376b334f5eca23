/** Many jobs on one connection: the logs of some that are named, or where those of a list stand. */

/** @import { FollowOptions, Snapshot, SseMessage, WatchOptions } from "../windlass.js" */
/** @import { Context, Verdict } from "./stream.js" */

import { eventOfView, seqOf, trouble } from "./event.js";
import { isNext } from "./job-log.js";
import { Listener, guarded } from "./listener.js";
import { keepOpen } from "./stream.js";

const PATH = "/api/events";
const REMEMBERED = 10_000; // jobs of a list

/**
 * Returns when all of these jobs have ended.
 *
 * @param {Context} context
 * @param {Record<string, string | number>} jobs for each the last event that is known
 * @param {FollowOptions} options
 * @param {AbortSignal} signal
 */
export async function followMany(context, jobs, options, signal) {
  const cursors = new Map(Object.entries(jobs).map(([id, after]) => [id, seqOf(after)]));
  const listener = () => new Listener(options, context.log);
  const listeners = new Map([...cursors.keys()].map((id) => [id, listener()]));
  if (cursors.size === 0) return;
  const open = new Set(cursors.keys());

  /** @returns {Verdict} */
  const take = (/** @type {SseMessage} */ { type, data }) => {
    const view = JSON.parse(data);
    if (view.seq === undefined) throw trouble(type, view);
    const event = eventOfView(view);
    const last = cursors.get(event.jobId);
    if (last === undefined || !isNext(event, last, context.log)) return "ignored";
    cursors.set(event.jobId, event.seq);
    if (event.final) open.delete(event.jobId);
    listeners.get(event.jobId)?.hear(event);
    return open.size === 0 ? "ended" : "taken";
  };
  const after = () => [...cursors].map(([id, seq]) => `${id}:${seq}`).join(",");
  const changed = guarded(context.log, options.onConnection);
  await keepOpen(context, { where: () => [PATH, { after: after() }], take, changed }, signal);
  for (const id of open) listeners.get(id)?.end();
}

/**
 * Returns never, but by an error.
 *
 * @param {Context} context
 * @param {Record<string, any>} filter
 * @param {(snapshot: Snapshot) => unknown} callback
 * @param {WatchOptions} options
 * @param {AbortSignal} signal
 */
export async function watch(context, filter, callback, options, signal) {
  /** @type {Map<string, Snapshot>} */
  const known = new Map();
  const tell = guarded(context.log, callback);

  /** @returns {Verdict} */
  const take = (/** @type {SseMessage} */ { type, data }) => {
    const said = JSON.parse(data);
    if (type !== "snapshot") throw trouble(type, said);
    if (isNews(said, known.get(said.id))) {
      remember(known, said);
      tell(said);
    }
    return "taken";
  };
  const changed = guarded(context.log, options.onConnection);
  await keepOpen(context, { where: () => [PATH, filter], take, changed }, signal);
}

/**
 * Each connection begins with all of the list: what is known is not told again, nor what is older.
 *
 * @param {Snapshot} said
 * @param {Snapshot | undefined} known
 */
function isNews(said, known) {
  if (known === undefined || said.state === null) return true;
  return said.seq > known.seq || said.listed !== known.listed;
}

/**
 * @param {Map<string, Snapshot>} known
 * @param {Snapshot} said
 */
function remember(known, said) {
  known.delete(said.id); // so that the newest are last
  if (said.state !== null) known.set(said.id, said);
  for (const id of known.keys()) {
    if (known.size <= REMEMBERED) break;
    known.delete(id);
  }
}
