/** Addresses: which page is asked for, with what; and how to go to another one. */

/**
 * @typedef {object} Place
 * @property {string} path without the slash in front, below where the dashboard is mounted; as it
 *   is in the address
 * @property {URLSearchParams} query
 */

const base = new URL(document.baseURI);
/** @type {Set<() => void>} */
const listeners = new Set();

/** @returns {Place} */
export function place() {
  const { pathname, search } = window.location;
  const path = pathname.slice(base.pathname.length).replace(/\/+$/, "");
  return { path, query: new URLSearchParams(search) };
}

/**
 * The address of a page; values that are empty are left out.
 *
 * @param {string} path
 * @param {Record<string, any> | URLSearchParams} [query]
 */
export function to(path, query = {}) {
  const pairs = query instanceof URLSearchParams ? [...query] : spread(query);
  const text = new URLSearchParams(pairs).toString();
  return base.pathname + path + (text && `?${text}`);
}

/**
 * @param {Record<string, any>} query
 * @returns {[string, string][]}
 */
function spread(query) {
  return Object.entries(query).flatMap(([name, value]) =>
    (Array.isArray(value) ? value : [value])
      .filter((one) => one !== undefined && one !== null && one !== "")
      .map((one) => /** @type {[string, string]} */ ([name, String(one)])),
  );
}

/**
 * @param {string} address as `to` makes it
 * @param {{ replace?: boolean }} [how]
 */
export function go(address, { replace = false } = {}) {
  const here = window.location.pathname + window.location.search;
  if (replace) window.history.replaceState(null, "", address);
  else if (address !== here) window.history.pushState(null, "", address);
  for (const call of listeners) call();
}

/** @param {() => void} call */
export function onMove(call) {
  listeners.add(call);
}

window.addEventListener("popstate", () => {
  for (const call of listeners) call();
});

/** Links within the dashboard are followed without loading it again. */
document.addEventListener("click", (event) => {
  if (event.defaultPrevented || event.button !== 0) return;
  if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const link = /** @type {Element} */ (event.target).closest?.("a[href]");
  if (!link || link.hasAttribute("target") || link.hasAttribute("download")) return;
  const url = new URL(link.getAttribute("href") ?? "", document.baseURI); // of drawings, too
  const inside = url.origin === base.origin && url.pathname.startsWith(base.pathname);
  if (!inside || url.pathname.startsWith(`${base.pathname}api/`)) return;
  event.preventDefault();
  go(url.pathname + url.search);
});
