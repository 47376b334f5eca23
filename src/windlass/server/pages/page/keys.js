/** API keys: who may come in, and to do what. */

/** @import { Page } from "../page.js" */
/** @import { Column } from "../view/parts.js" */

import { askForKey, showKey } from "../keys/new-key.js";
import { api, self } from "../session.js";
import { confirm } from "../view/dialog.js";
import { h } from "../view/dom.js";
import { badge, button, empty, table, title, trouble, when } from "../view/parts.js";
import { toast } from "../view/toast.js";

/**
 * @typedef {object} Key
 * @property {string} id
 * @property {string} name
 * @property {string[]} roles
 * @property {string | null} owner
 * @property {string | null} team
 * @property {string} createdAt
 * @property {string | null} expiresAt
 * @property {string | null} revokedAt
 */

/** @type {Page} */
export function keysPage(view) {
  /** @type {Key[] | null} */
  let keys = null;
  /** @type {unknown} */
  let error = null;
  view.title("API keys");

  const load = async () => {
    try {
      keys = (await api.request("GET", "/api/keys")).keys;
      error = null;
    } catch (wrong) {
      error = wrong;
    }
    view.changed();
  };
  const create = async () => {
    const asked = await askForKey(keys !== null && keys.length === 0 && self()?.by === "open");
    if (asked === null) return;
    try {
      await showKey(await api.request("POST", "/api/keys", { body: asked }));
    } catch (wrong) {
      toast(/** @type {Error} */ (wrong).message, "failed");
    }
    await load();
  };
  const revoke = async (/** @type {Key} */ key) => {
    const own = key.id === self()?.keyId;
    const agreed = await confirm({
      title: `Revoke the key of ${key.name || key.id}?`,
      text: own
        ? "It is the one that you are signed in with: you will be signed out."
        : "Whoever uses it is refused within seconds, and their streams end. It does not come back.",
      action: "Revoke",
      danger: true,
    });
    if (!agreed) return;
    try {
      await api.request("DELETE", `/api/keys/${encodeURIComponent(key.id)}`, { repeat: true });
      toast(`The key ${key.id} is revoked.`);
    } catch (wrong) {
      toast(/** @type {Error} */ (wrong).message, "failed");
    }
    await load();
  };
  void load();
  return () => [
    title("API keys", button("New key", create, { kind: "main", icon: "enqueue" })),
    error !== null && trouble(error, load),
    keys === null
      ? error === null && h("div", { class: "skeleton" })
      : keys.length > 0
        ? table("API keys", [...COLUMNS, revoking(revoke)], [...keys].sort(order), (one) => one.id)
        : empty(
            "There are no keys",
            "Until there is one, everybody on this machine may do everything.",
            null,
            "keys",
          ),
  ];
}

/** Those that are good first, the newest first. @param {Key} one @param {Key} other */
const order = (one, other) =>
  Number(one.revokedAt !== null) - Number(other.revokedAt !== null) ||
  other.createdAt.localeCompare(one.createdAt);

/** @param {Key} one */
function standing(one) {
  if (one.revokedAt !== null) return badge("canceled", "revoked");
  if (one.expiresAt !== null && new Date(one.expiresAt) < new Date())
    return badge("canceled", "expired");
  return badge("succeeded", "good");
}

/** @type {Column<Key>[]} */
const COLUMNS = [
  {
    name: "Key",
    cell: (one) =>
      h(
        "div",
        null,
        h("strong", null, one.name || "–"),
        h("div", null, h("code", { class: "faint" }, one.id)),
      ),
  },
  { name: "State", cell: standing },
  {
    name: "May",
    cell: (one) =>
      h(
        "span",
        null,
        one.roles.map((role) => [h("span", { class: "tag" }, role), " "]),
      ),
  },
  {
    name: "For",
    cell: (one) =>
      one.owner === null && one.team === null
        ? h("span", { class: "soft" }, "all jobs")
        : [one.owner, one.team].filter((word) => word !== null).join(", team "),
  },
  { name: "Made", cell: (one) => when(one.createdAt) },
  { name: "Until", cell: (one) => when(one.revokedAt ?? one.expiresAt) },
];

/** @param {(key: Key) => unknown} revoke @returns {Column<Key>} */
const revoking = (revoke) => ({
  name: "Do",
  cell: (one) =>
    one.revokedAt === null &&
    button("Revoke", () => revoke(one), {
      slim: true,
      kind: "danger",
      label: `Revoke ${one.name || one.id}`,
    }),
});
