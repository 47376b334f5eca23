/**
 * Live data for the pages of this tab. All tabs of a browser share one hub, and with it one event
 * stream. Without shared workers, each tab has its own hub.
 */

/** @import { Port } from "./messages.js" */

import { HubClient } from "./hub-client.js";

/**
 * URL of the worker script. The page's policy requires a trusted type for it. The URL contains the
 * release digest: pages of another release have another hub, and the old one ends with its last
 * tab.
 *
 * @type {string | URL}
 */
const script = trustedUrl(new URL("./hub.js", import.meta.url).href);

/** @param {string} url @returns {string} */
function trustedUrl(url) {
  const types = /** @type {any} */ (window).trustedTypes;
  return (
    types?.createPolicy("windlass", { createScriptURL: () => url }).createScriptURL(url) ?? url
  );
}

/**
 * Name of a lock held until the tab ends: the hub waits for the lock to notice the end. Null
 * without the Locks API (plain http pages); the hub then uses a timeout.
 *
 * @type {Promise<string | null>}
 */
const tabLock = new Promise((resolve) => {
  if (navigator.locks === undefined) resolve(null);
  const name = `windlass ${performance.timeOrigin} ${Math.random()}`;
  void navigator.locks?.request(name, () => {
    resolve(name);
    return new Promise(() => {});
  });
});

/** @returns {Promise<Port>} */
async function openPort() {
  if (typeof SharedWorker === "undefined") return ownHub();
  const worker = new SharedWorker(script, { type: "module", name: "windlass" });
  return new Promise((resolve) => {
    worker.onerror = () => resolve(ownHub()); // the worker did not start
    worker.port.onmessage = () => resolve(worker.port); // its first message: it is running
  });
}

async function ownHub() {
  const { Hub } = await import("./hub.js");
  const { port1, port2 } = new MessageChannel();
  new Hub().join(port1);
  return port2;
}

const isVisible = () => document.visibilityState === "visible";

export const live = new HubClient({ open: openPort, lock: tabLock, visible: isVisible() });
document.addEventListener("visibilitychange", () => live.setVisible(isVisible()));
addEventListener("pagehide", () => live.leave());
addEventListener("pageshow", ({ persisted }) => {
  if (persisted) live.subscribeAll(); // restored from the back/forward cache
});
