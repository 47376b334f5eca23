/** The dashboard: who is there, which page they want, and what surrounds it. */

import { live } from "./live/tab.js";
import { View } from "./page.js";
import { pageAt } from "./pages.js";
import { onMove, place } from "./router.js";
import { isOther, person, recognised } from "./session.js";
import { menu, watchLine } from "./shell.js";
import { signInPage } from "./page/sign-in.js";
import { dismiss } from "./view/dialog.js";
import { h, render } from "./view/dom.js";
import { trouble } from "./view/parts.js";
import { keepTheme } from "./view/theme.js";
import { clearToasts } from "./view/toast.js";

const root = document.createElement("div");
document.body.prepend(root);

/** @type {View | null} */
let view = null;
let shown = "";
let menuOpen = false;
/** Of asking who one is: so that the menu knows how the line is, whatever the page asks for. */
let stopAsking = () => {};
const ASKED = 10; // seconds

function frame() {
  render(
    root,
    h(
      "div",
      { class: "shell", key: "shell" },
      h("a", { class: "skip", href: "#main", onclick: skip }, "Skip to the page"),
      menu(shown, menuOpen, toggleMenu, leave),
      h("main", { id: "main", class: pageAt(shown).name, tabindex: -1, island: () => {} }),
    ),
  );
}

/** @param {Event} event */
function skip(event) {
  event.preventDefault();
  document.getElementById("main")?.focus();
}

/** @param {boolean} [open] */
function toggleMenu(open = !menuOpen) {
  menuOpen = open;
  frame();
}

/** Show what the address says. */
function show() {
  const here = place();
  dismiss(); // it asked about what is left behind
  if (menuOpen) toggleMenu(false);
  if (view !== null && here.path === shown) {
    view.moved(here);
    return;
  }
  view?.close();
  const first = view === null;
  shown = here.path;
  frame();
  const main = /** @type {HTMLElement} */ (document.getElementById("main"));
  const { page, parts } = pageAt(here.path);
  render(main, null);
  view = new View(main, here, parts);
  view.open(page);
  window.scrollTo(0, 0);
  if (!first) main.focus({ preventScroll: true }); // so that a screen reader begins there
}

/** Nothing stays on the screen: whoever comes next may be somebody else. */
function clear() {
  stopAsking();
  dismiss();
  clearToasts();
  view?.close();
  view = null;
  shown = "";
  render(root, null);
}

/** After signing out, and when the server no longer knows who is here. */
function leave() {
  clear();
  signInPage(root, enter);
}

async function enter() {
  try {
    if (!(await recognised())) {
      leave();
      return;
    }
  } catch (error) {
    clear();
    render(root, h("div", { class: "sign-in" }, trouble(error, enter)));
    return;
  }
  clear();
  live.restart(person());
  stopAsking = live.poll("/api/session", ASKED, (told) => isOther(told) && void enter());
  show();
}

keepTheme();
// Whoever comes back from another tab may be somebody else since.
document.addEventListener(
  "visibilitychange",
  () => document.hidden || live.refresh("/api/session"),
);
onMove(() => view !== null && show());
watchLine(
  () => view !== null && frame(),
  () => view !== null && leave(),
);
void enter();
