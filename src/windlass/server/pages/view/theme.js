/** Light or dark theme: the system's, unless the user chooses. */

const KEY = "windlass-theme";
const ORDER = /** @type {const} */ (["system", "light", "dark"]);

/** @typedef {typeof ORDER[number]} Theme */

/** @returns {Theme} */
export function theme() {
  const value = stored();
  return ORDER.find((choice) => choice === value) ?? "system";
}

/** Switch to the next theme and store it. */
export function nextTheme() {
  const next = ORDER[(ORDER.indexOf(theme()) + 1) % ORDER.length];
  try {
    window.localStorage.setItem(KEY, next);
  } catch {
    // Storage is blocked: the choice lasts until the page is reloaded.
  }
  apply(next);
}

export function initTheme() {
  apply(theme());
  window.addEventListener("storage", (event) => event.key === KEY && apply(theme()));
}

/** @param {Theme} chosen */
function apply(chosen) {
  if (chosen === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = chosen;
}

function stored() {
  try {
    return window.localStorage.getItem(KEY);
  } catch {
    return document.documentElement.dataset.theme ?? null;
  }
}
