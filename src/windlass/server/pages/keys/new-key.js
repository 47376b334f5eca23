/** Asking what a new key is for, and showing it: once. */

import { h } from "../view/dom.js";
import { ask, confirm } from "../view/dialog.js";
import { copyButton } from "../view/parts.js";

/** @typedef {{ name: string, roles: string[], owner?: string, team?: string, expiresIn?: string }} Asked */
/** @typedef {{ id: string, name: string, key: string }} Made */

const ROLES = {
  viewer: "look",
  producer: "look; enqueue, cancel, retry, resume",
  worker: "look; take jobs and speak for them",
  operator: "all that concerns jobs, queues and schedules",
  admin: "everything, keys and the audit too",
};

/**
 * @param {boolean} first whether from now on everybody needs one
 * @returns {Promise<Asked | null>}
 */
export async function askForKey(first) {
  /** @type {Record<string, string>} */
  const words = { name: "", owner: "", team: "", expiresIn: "" };
  /** @type {Set<string>} */
  const roles = new Set(first ? ["admin"] : []);
  const agreed = await ask({
    title: "A new API key",
    action: "Make it",
    ready: () => words.name.trim() !== "" && roles.size > 0,
    inside: (changed) => [
      first &&
        h(
          "p",
          { class: "note state-retrying" },
          "With the first key the door is locked: from then on everybody needs one. Make the first for an admin.",
        ),
      text("name", "Name", "who or what will use it", words, changed),
      h(
        "fieldset",
        { class: "group" },
        h("legend", null, "May"),
        Object.entries(ROLES).map(([role, may]) => box(role, may, roles, changed)),
      ),
      text("owner", "Only for jobs of the owner", "all owners, if left empty", words, changed),
      text("team", "Only for jobs of the team", "all teams, if left empty", words, changed),
      text("expiresIn", "Good for", "30d, 12h; for ever, if left empty", words, changed),
    ],
  });
  if (!agreed) return null;
  const more = Object.entries(words).filter(([, value]) => value.trim() !== "");
  return /** @type {Asked} */ ({ ...Object.fromEntries(more), roles: [...roles] });
}

/**
 * @param {string} name
 * @param {string} label
 * @param {string} hint
 * @param {Record<string, string>} words
 * @param {() => void} changed
 */
const text = (name, label, hint, words, changed) =>
  h(
    "div",
    { class: "field" },
    h("label", { for: `key-${name}` }, label),
    h("input", {
      id: `key-${name}`,
      class: "input",
      value: words[name],
      autocomplete: "off",
      placeholder: hint,
      oninput: (/** @type {InputEvent} */ event) => {
        words[name] = /** @type {HTMLInputElement} */ (event.target).value;
        changed();
      },
    }),
  );

/**
 * @param {string} role
 * @param {string} may
 * @param {Set<string>} roles
 * @param {() => void} changed
 */
const box = (role, may, roles, changed) =>
  h(
    "label",
    { class: "check" },
    h("input", {
      type: "checkbox",
      checked: roles.has(role),
      onchange: () => {
        if (!roles.delete(role)) roles.add(role);
        changed();
      },
    }),
    h("span", null, h("strong", null, role), h("span", { class: "soft small" }, ` ${may}`)),
  );

/** @param {Made} made */
export const showKey = (made) =>
  confirm({
    title: `The key of ${made.name}`,
    action: "I have it",
    stays: true, // with the first key, the door is locked while it is shown
    text: [
      h("p", null, "It is shown only now: the server keeps no more than a digest of it."),
      h("pre", { class: "code" }, made.key),
      copyButton(() => made.key, "the key"),
    ],
  });
