/** An address at which there is nothing, or nothing for this person. */

/** @import { Page } from "../page.js" */

import { to } from "../router.js";
import { h } from "../view/dom.js";
import { empty } from "../view/parts.js";

/** @type {Page} */
export function notFoundPage(view) {
  view.title("Not found");
  return () =>
    empty(
      "There is nothing at this address",
      "It may have been shortened when it was copied.",
      jobs(),
    );
}

/** @type {Page} */
export function notAllowedPage(view) {
  view.title("Not allowed");
  return () =>
    empty("This page is not for your key", "It shows more than that allows.", jobs(), "keys");
}

const jobs = () => h("a", { class: "button", href: to("jobs") }, "All jobs");
