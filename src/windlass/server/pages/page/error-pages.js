/** Pages for an unknown address and for missing permission. */

/** @import { Page } from "../page-view.js" */

import { pageUrl } from "../navigation.js";
import { h } from "../view/virtual-dom.js";
import { empty } from "../view/components.js";

/** @type {Page} */
export function notFoundPage(view) {
  view.title("Not found");
  return () => empty("Page not found", "Check the address: it may be incomplete.", jobs());
}

/** @type {Page} */
export function accessDeniedPage(view) {
  view.title("Not allowed");
  return () =>
    empty("Access denied", "Your API key has no permission for this page.", jobs(), "keys");
}

const jobs = () => h("a", { class: "button", href: pageUrl("jobs") }, "All jobs");
