/** Who looks at the page, and what they may do: what they may not is not offered. */

/** @import { WindlassError } from "./client/windlass.js" */

import { Windlass } from "./client/windlass.js";

/**
 * @typedef {object} Who
 * @property {string} name
 * @property {string[]} roles
 * @property {string[]} rights
 * @property {string | null} owner
 * @property {string | null} team
 * @property {string | null} keyId
 * @property {"session" | "key" | "open"} by
 */

/** @typedef {"read" | "survey" | "produce" | "remove" | "operate" | "admin"} Right */

export const api = new Windlass({ url: document.baseURI.replace(/\/+$/, "") });

/** @type {Who | null} */
let who = null;

export const self = () => who;

/** @param {Right} right */
export const may = (right) => who !== null && who.rights.includes(right);

/** The same text for the same person. */
export const person = () => JSON.stringify(who);

/**
 * Whether the server takes who looks at the page for somebody else by now: another tab of the
 * browser may have signed out, and in again.
 *
 * @param {Who | null} told
 */
export const isOther = (told) => told !== null && JSON.stringify(told) !== person();

/** Whether somebody is signed in, or need not be. */
export async function recognised() {
  try {
    who = await api.request("GET", "/api/session");
    return true;
  } catch (error) {
    if (/** @type {WindlassError} */ (error).status !== 401) throw error;
    who = null;
    return false;
  }
}

/** @param {string} key */
export async function signIn(key) {
  await api.request("POST", "/api/session", { body: { key } });
  await recognised();
}

export async function signOut() {
  await api.request("DELETE", "/api/session", { repeat: true });
  who = null;
}
