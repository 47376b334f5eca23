/** Navigation menu of every page: links, connection state, user. */

/** @import { Icon } from "./view/icons.js" */
/** @import { Connection } from "./live/messages.js" */
/** @import { Permission } from "./client/windlass.js" */

import { duration } from "./format.js";
import { live } from "./live/live.js";
import { pageUrl } from "./navigation.js";
import { currentSession, may, signOut } from "./session.js";
import { h } from "./view/virtual-dom.js";
import { icon } from "./view/icons.js";
import { button } from "./view/components.js";
import { nextTheme, theme } from "./view/theme.js";
import { toast } from "./view/toast.js";

/** @type {{ path: string, name: string, icon: Icon, permission: Permission }[]} */
const ITEMS = [
  { path: "", name: "Overview", icon: "overview", permission: "monitor" },
  { path: "jobs", name: "Jobs", icon: "jobs", permission: "read" },
  { path: "failures", name: "Failures", icon: "failures", permission: "read" },
  { path: "flows", name: "Flows", icon: "flows", permission: "read" },
  { path: "schedules", name: "Schedules", icon: "schedules", permission: "monitor" },
  { path: "workers", name: "Workers", icon: "workers", permission: "monitor" },
  { path: "enqueue", name: "Enqueue", icon: "enqueue", permission: "produce" },
  { path: "audit", name: "Audit", icon: "audit", permission: "admin" },
  { path: "keys", name: "API keys", icon: "keys", permission: "admin" },
];
const THEMES = /** @type {const} */ ({ system: "system", light: "sun", dark: "moon" });

/** @type {Connection} */
let connection = { open: true, since: new Date(), attempt: 0, wait: 0, error: null };

/**
 * @param {() => void} changed
 * @param {() => void} signedOut
 */
export function watchConnection(changed, signedOut) {
  live.connection((state) => {
    connection = state;
    if (state.error?.status === 401) signedOut();
    changed();
  });
}

/**
 * @param {string} path
 * @param {boolean} open
 * @param {(open?: boolean) => void} toggle
 * @param {() => void} signedOut
 */
export function menu(path, open, toggle, signedOut) {
  const first = path.split("/")[0];
  return h(
    "nav",
    { class: `menu ${open ? "opened" : ""}`, "aria-label": "Main menu" },
    h("a", { class: "brand", href: pageUrl("") }, h("img", { src: image, alt: "" }), "Windlass"),
    h(
      "button",
      {
        type: "button",
        class: "button plain menu-button",
        "aria-expanded": String(open),
        "aria-label": "Menu",
        onclick: () => toggle(),
      },
      icon(open ? "close" : "menu"),
    ),
    h(
      "ul",
      null,
      ITEMS.filter(({ permission }) => may(permission)).map((item) =>
        h(
          "li",
          { key: item.path },
          h(
            "a",
            { href: pageUrl(item.path), "aria-current": item.path === first ? "page" : undefined },
            icon(item.icon),
            item.name,
          ),
        ),
      ),
    ),
    footer(signedOut, () => toggle(open)),
  );
}

const image = new URL("./icon.svg", import.meta.url).href;

/** @param {() => void} signedOut @param {() => void} changed */
function footer(signedOut, changed) {
  const session = currentSession();
  const switchTheme = () => {
    nextTheme();
    changed();
  };
  const out = async () => {
    try {
      await signOut();
      signedOut();
    } catch (error) {
      toast(/** @type {Error} */ (error).message, "failed");
    }
  };
  return h(
    "div",
    { class: "foot" },
    h(
      "div",
      { class: `connection ${connection.open ? "open" : "lost"}`, role: "status" },
      h("span", { class: "dot" }),
      connection.open ? "Live" : connectionText(),
      button(icon(THEMES[theme()]), switchTheme, {
        kind: "plain",
        slim: true,
        label: `Color theme: ${theme()}. Switch theme`,
        title: `Color theme: ${theme()}`,
      }),
    ),
    session !== null &&
      session.by !== "open" &&
      h(
        "div",
        { class: "row" },
        h("span", { class: "cut", title: session.roles.join(", ") }, session.name),
        button(icon("signOut"), out, {
          kind: "plain",
          slim: true,
          label: "Sign out",
          title: "Sign out",
        }),
      ),
  );
}

function connectionText() {
  const { wait } = connection;
  return wait > 0 ? `Disconnected; retrying in ${duration(wait / 1000)}` : "Connecting …";
}
