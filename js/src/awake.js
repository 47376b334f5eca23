/** When to try again at once: the network is back, somebody looks, the machine has slept. */

/** @import { Timers } from "../windlass.js" */

const LOOK = 10_000; // milliseconds between two looks at the clock
const SLEPT = 90_000; // more than browsers delay timers of pages that nobody sees

/**
 * Waits for: what the browser says, and for its time to look at the clock. Guarantees: a call when
 * a line that was good may be dead (`broken`), and one when somebody looks (`seen`). Stops: by the
 * function that it returns.
 *
 * @param {Timers} timers
 * @param {{ broken: () => void, seen: () => void }} calls
 * @returns {() => void}
 */
export function awake(timers, { broken, seen }) {
  const wall = timers.wall ?? Date.now;
  let before = wall();
  const look = () => {
    const jumped = wall() - before > LOOK + SLEPT; // timers do not count the time of sleep
    before = wall();
    timer = timers.setTimeout(look, LOOK);
    if (jumped) broken();
  };
  let timer = timers.setTimeout(look, LOOK);
  const shown = () => {
    if (globalThis.document.visibilityState === "visible") seen();
  };
  globalThis.addEventListener?.("online", broken);
  globalThis.document?.addEventListener("visibilitychange", shown);
  return () => {
    timers.clearTimeout(timer);
    globalThis.removeEventListener?.("online", broken);
    globalThis.document?.removeEventListener("visibilitychange", shown);
  };
}
