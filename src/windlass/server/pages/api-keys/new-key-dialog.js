/** Dialogs to create an API key and to show it once. */

/** @import { CreatedKey, NewKey, Role } from "../client/windlass.js" */

import { h } from "../view/virtual-dom.js";
import { confirm, openDialog } from "../view/dialog.js";
import { copyButton } from "../view/components.js";

/** @type {Record<Role, string>} */
const ROLES = {
  viewer: "read",
  producer: "read; enqueue, cancel, retry, resume",
  worker: "read; claim jobs and report their results",
  operator: "all actions on jobs, queues and schedules",
  admin: "everything, including API keys and the audit log",
};

/**
 * @param {boolean} first whether it is the first key, after which sign-in is required
 * @returns {Promise<NewKey | null>}
 */
export async function askForKey(first) {
  /** @type {Record<string, string>} */
  const values = { name: "", owner: "", team: "", expiresIn: "" };
  /** @type {Set<Role>} */
  const roles = new Set(first ? ["admin"] : []);
  const confirmed = await openDialog({
    title: "New API key",
    action: "Create",
    ready: () => values.name.trim() !== "" && roles.size > 0,
    content: (changed) => [
      first &&
        h(
          "p",
          { class: "note state-retrying" },
          "After the first key is created, everyone needs a key. Give the first one the admin role.",
        ),
      text("name", "Name", "user or service", values, changed),
      h(
        "fieldset",
        { class: "group" },
        h("legend", null, "Roles"),
        /** @type {Role[]} */ (Object.keys(ROLES)).map((role) => box(role, roles, changed)),
      ),
      text("owner", "Only jobs of owner", "empty: all owners", values, changed),
      text("team", "Only jobs of team", "empty: all teams", values, changed),
      text("expiresIn", "Expires in", "30d, 12h; empty: never", values, changed),
    ],
  });
  if (!confirmed) return null;
  const more = Object.entries(values).filter(([, value]) => value.trim() !== "");
  return /** @type {NewKey} */ ({ ...Object.fromEntries(more), roles: [...roles] });
}

/**
 * @param {string} name
 * @param {string} label
 * @param {string} hint
 * @param {Record<string, string>} values
 * @param {() => void} changed
 */
const text = (name, label, hint, values, changed) =>
  h(
    "div",
    { class: "field" },
    h("label", { for: `key-${name}` }, label),
    h("input", {
      id: `key-${name}`,
      class: "input",
      value: values[name],
      autocomplete: "off",
      placeholder: hint,
      oninput: (/** @type {InputEvent} */ event) => {
        values[name] = /** @type {HTMLInputElement} */ (event.target).value;
        changed();
      },
    }),
  );

/**
 * @param {Role} role
 * @param {Set<Role>} roles
 * @param {() => void} changed
 */
const box = (role, roles, changed) =>
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
    h("span", null, h("strong", null, role), h("span", { class: "soft small" }, ` ${ROLES[role]}`)),
  );

/** @param {CreatedKey} created */
export const showKey = (created) =>
  confirm({
    title: `API key ${created.name}`,
    action: "Done",
    stays: true, // creating the first key signs the user out meanwhile
    text: [
      h("p", null, "Copy the key now: it is not shown again. The server stores only a hash."),
      h("pre", { class: "code" }, created.key),
      copyButton(() => created.key, "the key"),
    ],
  });
