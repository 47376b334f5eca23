/** Where one shows an API key, once. */

import { signIn } from "../session.js";
import { h, render } from "../view/dom.js";
import { button } from "../view/parts.js";

const image = new URL("../icon.svg", import.meta.url).href;

/**
 * @param {Element} root
 * @param {() => unknown} enter
 */
export function signInPage(root, enter) {
  let wrong = "";
  let busy = false;
  document.title = "Sign in · Windlass";

  /** @param {SubmitEvent} event */
  const submit = async (event) => {
    event.preventDefault();
    const form = /** @type {HTMLFormElement} */ (event.target);
    const key = String(new FormData(form).get("key") ?? "").trim();
    if (!key || busy) return;
    busy = true;
    draw();
    try {
      await signIn(key);
    } catch (error) {
      wrong = /** @type {Error} */ (error).message;
      busy = false;
      draw();
      return;
    }
    await enter();
  };

  const draw = () =>
    render(
      root,
      h(
        "main",
        { class: "sign-in", key: "sign-in" },
        h(
          "form",
          { class: "card", onsubmit: submit },
          h("img", { src: image, alt: "" }),
          h("h1", null, "Sign in to Windlass"),
          h(
            "div",
            { class: "field" },
            h("label", { for: "key" }, "API key"),
            // For password managers: under which name they keep it.
            h("input", {
              class: "hidden",
              name: "username",
              autocomplete: "username",
              value: "windlass",
              readonly: true,
              tabindex: -1,
              "aria-hidden": "true",
            }),
            h("input", {
              id: "key",
              name: "key",
              class: "input mono",
              type: "password",
              autocomplete: "current-password",
              spellcheck: "false",
              placeholder: "wl_…",
              required: true,
              "aria-invalid": wrong ? "true" : undefined,
              "aria-describedby": "key-help",
            }),
            h(
              "p",
              {
                id: "key-help",
                class: wrong ? "wrong" : "hint",
                role: wrong ? "alert" : undefined,
              },
              wrong ||
                "It is shown once, and is not kept by this browser: windlass keys create me --role admin",
            ),
          ),
          button(busy ? "Signing in …" : "Sign in", undefined, {
            kind: "main",
            type: "submit",
            disabled: busy,
          }),
        ),
      ),
    );
  draw();
  document.getElementById("key")?.focus();
}
