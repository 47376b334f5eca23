/** Pages by URL path. */

/** @import { Page } from "./page-view.js" */
/** @import { Permission } from "./client/windlass.js" */

import { auditPage } from "./page/audit.js";
import { enqueuePage } from "./page/enqueue.js";
import { failuresPage } from "./page/failures.js";
import { flowPage } from "./page/flow.js";
import { flowsPage } from "./page/flows.js";
import { jobPage } from "./page/job.js";
import { jobsPage } from "./page/jobs.js";
import { apiKeysPage } from "./page/api-keys.js";
import { accessDeniedPage, notFoundPage } from "./page/error-pages.js";
import { overviewPage } from "./page/overview.js";
import { schedulesPage } from "./page/schedules.js";
import { workersPage } from "./page/workers.js";
import { may } from "./session.js";

/**
 * Path pattern, name (also the CSS class of the page), page, and required permission.
 *
 * @type {[RegExp, string, Page, Permission][]}
 */
const PAGES = [
  [/^$/, "overview", overviewPage, "read"], // redirects users without "monitor"
  [/^jobs$/, "jobs", jobsPage, "read"],
  [/^jobs\/([^/]+)$/, "job", jobPage, "read"],
  [/^failures$/, "failures", failuresPage, "read"],
  [/^flows$/, "flows", flowsPage, "read"],
  [/^flows\/([^/]+)$/, "flow", flowPage, "read"],
  [/^schedules$/, "schedules", schedulesPage, "monitor"],
  [/^workers$/, "workers", workersPage, "monitor"],
  [/^enqueue$/, "enqueue", enqueuePage, "produce"],
  [/^audit$/, "audit", auditPage, "admin"],
  [/^keys$/, "keys", apiKeysPage, "admin"],
];

/**
 * @param {string} path
 * @returns {{ page: Page, name: string, params: string[] }}
 */
export function pageAt(path) {
  for (const [pattern, name, page, permission] of PAGES) {
    const match = pattern.exec(path);
    if (match === null) continue;
    if (!may(permission)) return { page: accessDeniedPage, name: "not-found", params: [] };
    return { page, name, params: match.slice(1).map(decode) };
  }
  return { page: notFoundPage, name: "not-found", params: [] };
}

/** Decode a path segment; an invalid one stays as it is. @param {string} part */
function decode(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
