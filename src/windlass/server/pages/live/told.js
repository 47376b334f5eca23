/** @import { Told, WindlassError } from "../client/windlass.js" */

/**
 * An error as a message can carry it; `new WindlassError` makes one of it again.
 *
 * @param {WindlassError} error
 * @returns {Told}
 */
export function told({ type, title, detail, status, code, advice, instance, ...more }) {
  const { fields: errors, permanent, retryAfter } = more;
  const told = { type, title, detail, status, code, advice, instance };
  return { ...told, errors, permanent, retryAfter };
}
