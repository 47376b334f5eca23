/** Table of API keys; create and revoke keys. */

/** @import { ApiKey } from "../client/windlass.js" */
/** @import { Page } from "../page-view.js" */
/** @import { Column } from "../view/components.js" */

import { api } from "../api.js";
import { askForKey, showKey } from "../api-keys/new-key-dialog.js";
import { currentSession } from "../session.js";
import { confirm } from "../view/dialog.js";
import { h } from "../view/virtual-dom.js";
import { badge, button, empty, errorNote, table, title, when } from "../view/components.js";
import { toast } from "../view/toast.js";

/** @type {Page} */
export function apiKeysPage(view) {
  /** @type {ApiKey[] | null} */
  let keys = null;
  /** @type {unknown} */
  let error = null;
  view.title("API keys");

  const load = async () => {
    try {
      keys = (await api.request("GET", "/api/keys")).keys;
      error = null;
    } catch (problem) {
      error = problem;
    }
    view.changed();
  };
  const create = async () => {
    const request = await askForKey(
      keys !== null && keys.length === 0 && currentSession()?.by === "open",
    );
    if (request === null) return;
    try {
      await showKey(await api.request("POST", "/api/keys", { body: request }));
    } catch (problem) {
      toast(/** @type {Error} */ (problem).message, "failed");
    }
    await load();
  };
  const revoke = async (/** @type {ApiKey} */ key) => {
    const own = key.id === currentSession()?.keyId;
    const confirmed = await confirm({
      title: `Revoke key ${key.name || key.id}?`,
      text: own
        ? "You are signed in with this key and will be signed out."
        : "Requests with it are rejected within seconds, and its streams end. This cannot be undone.",
      action: "Revoke",
      danger: true,
    });
    if (!confirmed) return;
    try {
      await api.request("DELETE", `/api/keys/${encodeURIComponent(key.id)}`, { idempotent: true });
      toast(`Revoked key ${key.id}.`);
    } catch (problem) {
      toast(/** @type {Error} */ (problem).message, "failed");
    }
    await load();
  };
  void load();
  return () => [
    title("API keys", button("New key", create, { kind: "main", icon: "enqueue" })),
    error !== null && errorNote(error, load),
    keys === null
      ? error === null && h("div", { class: "skeleton" })
      : keys.length > 0
        ? table(
            "API keys",
            [...COLUMNS, revokeColumn(revoke)],
            [...keys].sort(order),
            (key) => key.id,
          )
        : empty(
            "No API keys",
            "Without keys, every user of this machine has full access.",
            null,
            "keys",
          ),
  ];
}

/** Active keys first, newest first. @param {ApiKey} key @param {ApiKey} other */
const order = (key, other) =>
  Number(key.revokedAt !== null) - Number(other.revokedAt !== null) ||
  other.createdAt.localeCompare(key.createdAt);

/** @param {ApiKey} key */
const stateBadge = ({ state }) =>
  state === "valid" ? badge("succeeded", "active") : badge("canceled", state);

/** @type {Column<ApiKey>[]} */
const COLUMNS = [
  {
    name: "Key",
    cell: (key) =>
      h(
        "div",
        null,
        h("strong", null, key.name || "–"),
        h("div", null, h("code", { class: "faint" }, key.id)),
      ),
  },
  { name: "State", cell: stateBadge },
  {
    name: "Roles",
    cell: (key) =>
      h(
        "span",
        null,
        key.roles.map((role) => [h("span", { class: "tag" }, role), " "]),
      ),
  },
  {
    name: "Scope",
    cell: (key) =>
      key.owner === null && key.team === null
        ? h("span", { class: "soft" }, "all jobs")
        : [key.owner, key.team].filter((word) => word !== null).join(", team "),
  },
  { name: "Created", cell: (key) => when(key.createdAt) },
  { name: "Expires or revoked", cell: (key) => when(key.revokedAt ?? key.expiresAt) },
];

/** @param {(key: ApiKey) => unknown} revoke @returns {Column<ApiKey>} */
const revokeColumn = (revoke) => ({
  name: "Actions",
  cell: (key) =>
    key.revokedAt === null &&
    button("Revoke", () => revoke(key), {
      slim: true,
      kind: "danger",
      label: `Revoke ${key.name || key.id}`,
    }),
});
