/** URLs of pages, and navigation between them. */

/**
 * @typedef {object} PageLocation
 * @property {string} path below the dashboard's mount point, without a leading slash, not decoded
 * @property {URLSearchParams} query
 */

const base = new URL(document.baseURI);
/** @type {Set<() => void>} */
const listeners = new Set();

/** @returns {PageLocation} */
export function currentLocation() {
  const { pathname, search } = window.location;
  const path = pathname.slice(base.pathname.length).replace(/\/+$/, "");
  return { path, query: new URLSearchParams(search) };
}

/**
 * Return the URL of a page. Omits empty query values.
 *
 * @param {string} path
 * @param {Record<string, any> | URLSearchParams} [query]
 */
export function pageUrl(path, query = {}) {
  const pairs = query instanceof URLSearchParams ? [...query] : queryPairs(query);
  const text = new URLSearchParams(pairs).toString();
  return base.pathname + path + (text && `?${text}`);
}

/**
 * @param {Record<string, any>} query
 * @returns {[string, string][]}
 */
function queryPairs(query) {
  return Object.entries(query).flatMap(([name, value]) =>
    (Array.isArray(value) ? value : [value])
      .filter((item) => item !== undefined && item !== null && item !== "")
      .map((item) => /** @type {[string, string]} */ ([name, String(item)])),
  );
}

/**
 * @param {string} address from `pageUrl`
 * @param {{ replace?: boolean }} [options]
 */
export function navigate(address, { replace = false } = {}) {
  const here = window.location.pathname + window.location.search;
  if (replace) window.history.replaceState(null, "", address);
  else if (address !== here) window.history.pushState(null, "", address);
  for (const call of listeners) call();
}

/** @param {() => void} call */
export function onNavigate(call) {
  listeners.add(call);
}

window.addEventListener("popstate", () => {
  for (const call of listeners) call();
});

/** Follow links within the dashboard without a page load. */
document.addEventListener("click", (event) => {
  if (event.defaultPrevented || event.button !== 0) return;
  if (event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const link = /** @type {Element} */ (event.target).closest?.("a[href]");
  if (!link || link.hasAttribute("target") || link.hasAttribute("download")) return;
  const url = new URL(link.getAttribute("href") ?? "", document.baseURI); // also links in SVG
  const inside = url.origin === base.origin && url.pathname.startsWith(base.pathname);
  if (!inside || url.pathname.startsWith(`${base.pathname}api/`)) return;
  event.preventDefault();
  navigate(url.pathname + url.search);
});
