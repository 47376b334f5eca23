/** Errors in messages between a tab and the hub. */

/** @import { ProblemInit, WindlassError } from "../client/windlass.js" */

/**
 * Return an error as structured-cloneable data; `new WindlassError` restores it.
 *
 * @param {WindlassError} error
 * @returns {ProblemInit}
 */
export function errorPayload({ type, title, detail, status, code, advice, instance, ...more }) {
  const { fields: errors, permanent, retryAfter } = more;
  const problem = { type, title, detail, status, code, advice, instance };
  return { ...problem, errors, permanent, retryAfter };
}
