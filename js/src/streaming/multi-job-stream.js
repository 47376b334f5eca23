/** Streams of several jobs: events of named jobs, or snapshots of a list. */

/** @import { FollowOptions, Snapshot, SseMessage, WatchOptions } from "../../windlass.js" */
/** @import { Context, MessageResult } from "./reconnecting-stream.js" */

import { eventFromJson, seqOf, serverError } from "./job-event.js";
import { isNext } from "./event-buffer.js";
import { JobListener } from "./job-listener.js";
import { safeCallback } from "./safe-callback.js";
import { keepOpen } from "./reconnecting-stream.js";

const PATH = "/api/events";
const MAX_KNOWN = 10_000; // jobs of a list

/**
 * Follow jobs until all of them have ended.
 *
 * @param {Context} context
 * @param {Record<string, string | number>} jobs last known event of each
 * @param {FollowOptions} options
 * @param {AbortSignal} signal
 */
export async function followMany(context, jobs, options, signal) {
  const cursors = new Map(Object.entries(jobs).map(([id, after]) => [id, seqOf(after)]));
  const listener = () => new JobListener(options, context.log);
  const listeners = new Map([...cursors.keys()].map((id) => [id, listener()]));
  if (cursors.size === 0) return;
  const open = new Set(cursors.keys());

  /** @returns {MessageResult} */
  const onMessage = (/** @type {SseMessage} */ { type, data }) => {
    const view = JSON.parse(data);
    if (view.seq === undefined) throw serverError(type, view);
    const event = eventFromJson(view);
    const last = cursors.get(event.jobId);
    if (last === undefined || !isNext(event, last, context.log)) return "ignored";
    cursors.set(event.jobId, event.seq);
    if (event.final) open.delete(event.jobId);
    listeners.get(event.jobId)?.handle(event);
    return open.size === 0 ? "ended" : "accepted";
  };
  const after = () => [...cursors].map(([id, seq]) => `${id}:${seq}`).join(",");
  const onConnection = safeCallback(context.log, options.onConnection);
  const target = () => /** @type {[string, object]} */ ([PATH, { after: after() }]);
  await keepOpen(context, { target, onMessage, onConnection }, signal);
  for (const id of open) listeners.get(id)?.end();
}

/**
 * Watch a list. Never returns, but throws on an error.
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
  const notify = safeCallback(context.log, callback);

  /** @returns {MessageResult} */
  const onMessage = (/** @type {SseMessage} */ { type, data }) => {
    const snapshot = JSON.parse(data);
    if (type !== "snapshot") throw serverError(type, snapshot);
    if (isNewer(snapshot, known.get(snapshot.id))) {
      remember(known, snapshot);
      notify(snapshot);
    }
    return "accepted";
  };
  const onConnection = safeCallback(context.log, options.onConnection);
  await keepOpen(context, { target: () => [PATH, filter], onMessage, onConnection }, signal);
}

/**
 * Return whether a snapshot is newer than the known one. Each connection sends the whole list.
 *
 * @param {Snapshot} snapshot
 * @param {Snapshot | undefined} known
 */
function isNewer(snapshot, known) {
  if (known === undefined || snapshot.state === null) return true;
  return snapshot.seq > known.seq || snapshot.listed !== known.listed;
}

/**
 * @param {Map<string, Snapshot>} known
 * @param {Snapshot} snapshot
 */
function remember(known, snapshot) {
  known.delete(snapshot.id); // keeps the newest last
  if (snapshot.state !== null) known.set(snapshot.id, snapshot);
  for (const id of known.keys()) {
    if (known.size <= MAX_KNOWN) break;
    known.delete(id);
  }
}
