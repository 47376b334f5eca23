/**
 * What happens on the server, for the pages of one tab. All tabs of a browser share one hub, and
 * with it one stream of events; where there are no shared workers, a tab has a hub of its own.
 */

/** @import { Port } from "./messages.js" */

import { Link } from "./link.js";

/**
 * The one script that is named by an address, which a strict page must say it trusts. The address
 * has the digest of the release: a page of another one has another hub, and the old one ends with
 * its last tab.
 *
 * @type {string | URL}
 */
const script = trusted(new URL("./hub.js", import.meta.url).href);

/** @param {string} url @returns {string} */
function trusted(url) {
  const types = /** @type {any} */ (window).trustedTypes;
  return (
    types?.createPolicy("windlass", { createScriptURL: () => url }).createScriptURL(url) ?? url
  );
}

/**
 * A lock that is held for as long as the tab lives, however it ends: its hub waits for it. (Where
 * there are none, as on pages that come by plain http from elsewhere, the hub waits for silence.)
 *
 * @type {Promise<string | null>}
 */
const alive = new Promise((resolve) => {
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
    worker.onerror = () => resolve(ownHub()); // it did not start
    worker.port.onmessage = () => resolve(worker.port); // its first word is that it is there
  });
}

async function ownHub() {
  const { Hub } = await import("./hub.js");
  const { port1, port2 } = new MessageChannel();
  new Hub().join(port1);
  return port2;
}

const isVisible = () => document.visibilityState === "visible";

export const live = new Link({ open: openPort, alive, visible: isVisible() });
document.addEventListener("visibilitychange", () => live.show(isVisible()));
addEventListener("pagehide", () => live.leave());
addEventListener("pageshow", ({ persisted }) => {
  if (persisted) live.greet(); // the browser had kept the page, and its hub had forgotten it
});
