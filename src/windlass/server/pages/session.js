/** The signed-in user and their permissions. */

/** @import { Caller, Permission, WindlassError } from "./client/windlass.js" */

import { api } from "./api.js";

/** @type {Caller | null} */
let session = null;

export const currentSession = () => session;

/** @param {Permission} permission */
export const may = (permission) => session !== null && session.permissions.includes(permission);

/** Return a string that is equal for equal sessions. */
export const identityKey = () => JSON.stringify(session);

/**
 * Return whether the server's session is of another user: another tab may have signed in again.
 *
 * @param {Caller | null} current
 */
export const isOtherUser = (current) =>
  current !== null && JSON.stringify(current) !== identityKey();

/** Load the session. Returns false if a sign-in is required. */
export async function loadSession() {
  try {
    session = await api.request("GET", "/api/session");
    return true;
  } catch (error) {
    if (/** @type {WindlassError} */ (error).status !== 401) throw error;
    session = null;
    return false;
  }
}

/** @param {string} key */
export async function signIn(key) {
  await api.request("POST", "/api/session", { body: { key } });
  await loadSession();
}

export async function signOut() {
  await api.request("DELETE", "/api/session", { idempotent: true });
  session = null;
}
