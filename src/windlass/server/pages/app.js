/** Start of the dashboard: session, current page, menu. */

import { live } from "./live/live.js";
import { PageView } from "./page-view.js";
import { pageAt } from "./routes.js";
import { currentLocation, onNavigate } from "./navigation.js";
import { identityKey, isOtherUser, loadSession } from "./session.js";
import { menu, watchConnection } from "./menu.js";
import { signInPage } from "./page/sign-in.js";
import { closeDialogs } from "./view/dialog.js";
import { h, render } from "./view/virtual-dom.js";
import { errorNote } from "./view/components.js";
import { initTheme } from "./view/theme.js";
import { clearToasts } from "./view/toast.js";

const root = document.createElement("div");
document.body.prepend(root);

/** @type {PageView | null} */
let view = null;
let shownPath = "";
let menuOpen = false;
/** Ends the session poll, which also keeps the connection state in the menu current. */
let stopSessionPoll = () => {};
const SESSION_PERIOD = 10; // seconds

function frame() {
  render(
    root,
    h(
      "div",
      { class: "shell", key: "shell" },
      h("a", { class: "skip", href: "#main", onclick: skip }, "Skip to content"),
      menu(shownPath, menuOpen, toggleMenu, showSignIn),
      h("main", { id: "main", class: pageAt(shownPath).name, tabindex: -1, island: () => {} }),
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

/** Show the page of the current URL. */
function show() {
  const location = currentLocation();
  closeDialogs(); // they belong to the previous page
  if (menuOpen) toggleMenu(false);
  if (view !== null && location.path === shownPath) {
    view.queryChanged(location);
    return;
  }
  view?.close();
  const first = view === null;
  shownPath = location.path;
  frame();
  const main = /** @type {HTMLElement} */ (document.getElementById("main"));
  const { page, params } = pageAt(location.path);
  render(main, null);
  view = new PageView(main, location, params);
  view.open(page);
  window.scrollTo(0, 0);
  if (!first) main.focus({ preventScroll: true }); // so that screen readers start there
}

/** Remove everything from the screen: the next user may be another one. */
function clear() {
  stopSessionPoll();
  closeDialogs();
  clearToasts();
  view?.close();
  view = null;
  shownPath = "";
  render(root, null);
}

/** Show the sign-in page, after a sign-out or an expired session. */
function showSignIn() {
  clear();
  signInPage(root, enter);
}

async function enter() {
  try {
    if (!(await loadSession())) {
      showSignIn();
      return;
    }
  } catch (error) {
    clear();
    render(root, h("div", { class: "sign-in" }, errorNote(error, enter)));
    return;
  }
  clear();
  live.restart(identityKey());
  stopSessionPoll = live.poll("/api/session", SESSION_PERIOD, (session) => {
    if (isOtherUser(session)) void enter();
  });
  show();
}

initTheme();
// The user may have changed in another tab.
document.addEventListener(
  "visibilitychange",
  () => document.hidden || live.refresh("/api/session"),
);
onNavigate(() => view !== null && show());
watchConnection(
  () => view !== null && frame(),
  () => view !== null && showSignIn(),
);
void enter();
