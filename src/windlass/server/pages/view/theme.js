/** Light or dark: as the system has it, unless the person chose. */

const KEY = "windlass-theme";
const ORDER = /** @type {const} */ (["system", "light", "dark"]);

/** @typedef {typeof ORDER[number]} Theme */

/** @returns {Theme} */
export function theme() {
  const found = stored();
  return ORDER.find((one) => one === found) ?? "system";
}

/** The next one, from now on. */
export function turnTheme() {
  const next = ORDER[(ORDER.indexOf(theme()) + 1) % ORDER.length];
  try {
    window.localStorage.setItem(KEY, next);
  } catch {
    // A browser that keeps nothing for this page: the choice holds until it is loaded again.
  }
  apply(next);
}

export function keepTheme() {
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
