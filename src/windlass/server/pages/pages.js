/** Which page is at which address. */

/** @import { Page } from "./page.js" */
/** @import { Right } from "./session.js" */

import { auditPage } from "./page/audit.js";
import { enqueuePage } from "./page/enqueue.js";
import { failuresPage } from "./page/failures.js";
import { flowPage } from "./page/flow.js";
import { flowsPage } from "./page/flows.js";
import { jobPage } from "./page/job.js";
import { jobsPage } from "./page/jobs.js";
import { keysPage } from "./page/keys.js";
import { notAllowedPage, notFoundPage } from "./page/not-found.js";
import { overviewPage } from "./page/overview.js";
import { schedulesPage } from "./page/schedules.js";
import { workersPage } from "./page/workers.js";
import { may } from "./session.js";

/**
 * Its name is the class of the page, to which its own stylesheet keeps; the right is what it asks
 * of who opens it.
 *
 * @type {[RegExp, string, Page, Right][]}
 */
const PAGES = [
  [/^$/, "overview", overviewPage, "read"], // it leads on whoever may not see it
  [/^jobs$/, "jobs", jobsPage, "read"],
  [/^jobs\/([^/]+)$/, "job", jobPage, "read"],
  [/^failures$/, "failures", failuresPage, "read"],
  [/^flows$/, "flows", flowsPage, "read"],
  [/^flows\/([^/]+)$/, "flow", flowPage, "read"],
  [/^schedules$/, "schedules", schedulesPage, "survey"],
  [/^workers$/, "workers", workersPage, "survey"],
  [/^enqueue$/, "enqueue", enqueuePage, "produce"],
  [/^audit$/, "audit", auditPage, "admin"],
  [/^keys$/, "keys", keysPage, "admin"],
];

/**
 * @param {string} path
 * @returns {{ page: Page, name: string, parts: string[] }}
 */
export function pageAt(path) {
  for (const [pattern, name, page, right] of PAGES) {
    const match = pattern.exec(path);
    if (match === null) continue;
    if (!may(right)) return { page: notAllowedPage, name: "nowhere", parts: [] };
    return { page, name, parts: match.slice(1).map(decoded) };
  }
  return { page: notFoundPage, name: "nowhere", parts: [] };
}

/** Whoever writes an address by hand may write anything. @param {string} part */
function decoded(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
