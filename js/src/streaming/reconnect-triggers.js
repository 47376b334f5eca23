/** Reasons to reconnect immediately: network back online, page visible again, machine resumed. */

/** @import { Timers } from "../../windlass.js" */

const INTERVAL = 10_000; // milliseconds between clock checks
const SLEEP = 90_000; // more than browsers delay timers of hidden pages

/**
 * Call `onMaybeDead` when an open connection may be dead, and `onVisible` when the page becomes
 * visible.
 *
 * Waits for browser events and its timer. Stops by the function that it returns.
 *
 * @param {Timers} timers
 * @param {{ onMaybeDead: () => void, onVisible: () => void }} callbacks
 * @returns {() => void}
 */
export function watchReconnectTriggers(timers, { onMaybeDead, onVisible }) {
  const wall = timers.wall ?? Date.now;
  let before = wall();
  const check = () => {
    const slept = wall() - before > INTERVAL + SLEEP; // timers do not run while the machine sleeps
    before = wall();
    timer = timers.setTimeout(check, INTERVAL);
    if (slept) onMaybeDead();
  };
  let timer = timers.setTimeout(check, INTERVAL);
  const visibilityChanged = () => {
    if (globalThis.document.visibilityState === "visible") onVisible();
  };
  globalThis.addEventListener?.("online", onMaybeDead);
  globalThis.document?.addEventListener("visibilitychange", visibilityChanged);
  return () => {
    timers.clearTimeout(timer);
    globalThis.removeEventListener?.("online", onMaybeDead);
    globalThis.document?.removeEventListener("visibilitychange", visibilityChanged);
  };
}
