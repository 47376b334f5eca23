/** The menu beside every page: where one can go, how the line is, who one is. */

/** @import { Icon } from "./view/icons.js" */
/** @import { Connection } from "./live/messages.js" */
/** @import { Right } from "./session.js" */

import { span } from "./format.js";
import { live } from "./live/tab.js";
import { to } from "./router.js";
import { may, self, signOut } from "./session.js";
import { h } from "./view/dom.js";
import { icon } from "./view/icons.js";
import { button } from "./view/parts.js";
import { theme, turnTheme } from "./view/theme.js";
import { toast } from "./view/toast.js";

/** @type {{ path: string, name: string, icon: Icon, right: Right }[]} */
const ITEMS = [
  { path: "", name: "Overview", icon: "overview", right: "survey" },
  { path: "jobs", name: "Jobs", icon: "jobs", right: "read" },
  { path: "failures", name: "Failures", icon: "failures", right: "read" },
  { path: "flows", name: "Flows", icon: "flows", right: "read" },
  { path: "schedules", name: "Schedules", icon: "schedules", right: "survey" },
  { path: "workers", name: "Workers", icon: "workers", right: "survey" },
  { path: "enqueue", name: "Enqueue", icon: "enqueue", right: "produce" },
  { path: "audit", name: "Audit", icon: "audit", right: "admin" },
  { path: "keys", name: "API keys", icon: "keys", right: "admin" },
];
const THEMES = /** @type {const} */ ({ system: "system", light: "sun", dark: "moon" });

/** @type {Connection} */
let line = { open: true, since: new Date(), attempt: 0, wait: 0, error: null };

/**
 * @param {() => void} changed
 * @param {() => void} signedOut
 */
export function watchLine(changed, signedOut) {
  live.connection((state) => {
    line = state;
    if (state.error?.status === 401) signedOut();
    changed();
  });
}

/**
 * @param {string} shown
 * @param {boolean} open
 * @param {(open?: boolean) => void} toggle
 * @param {() => void} leave
 */
export function menu(shown, open, toggle, leave) {
  const first = shown.split("/")[0];
  return h(
    "nav",
    { class: `menu ${open ? "opened" : ""}`, "aria-label": "Pages" },
    h("a", { class: "brand", href: to("") }, h("img", { src: image, alt: "" }), "Windlass"),
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
      ITEMS.filter((one) => may(one.right)).map((one) =>
        h(
          "li",
          { key: one.path },
          h(
            "a",
            { href: to(one.path), "aria-current": one.path === first ? "page" : undefined },
            icon(one.icon),
            one.name,
          ),
        ),
      ),
    ),
    foot(leave, () => toggle(open)),
  );
}

const image = new URL("./icon.svg", import.meta.url).href;

/** @param {() => void} leave @param {() => void} changed */
function foot(leave, changed) {
  const who = self();
  const turn = () => {
    turnTheme();
    changed();
  };
  const out = async () => {
    try {
      await signOut();
      leave();
    } catch (error) {
      toast(/** @type {Error} */ (error).message, "failed");
    }
  };
  return h(
    "div",
    { class: "foot" },
    h(
      "div",
      { class: `line ${line.open ? "open" : "lost"}`, role: "status" },
      h("span", { class: "dot" }),
      line.open ? "Live" : lineText(),
      button(icon(THEMES[theme()]), turn, {
        kind: "plain",
        slim: true,
        label: `Colours: ${theme()}. Change them`,
        title: `Colours: ${theme()}`,
      }),
    ),
    who !== null &&
      who.by !== "open" &&
      h(
        "div",
        { class: "row" },
        h("span", { class: "cut", title: who.roles.join(", ") }, who.name),
        button(icon("leave"), out, {
          kind: "plain",
          slim: true,
          label: "Sign out",
          title: "Sign out",
        }),
      ),
  );
}

function lineText() {
  const { wait } = line;
  return wait > 0 ? `No connection; again in ${span(wait / 1000)}` : "Connecting …";
}
