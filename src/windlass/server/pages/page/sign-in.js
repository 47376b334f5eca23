/** Sign-in page with an API key. */

import { signIn } from "../session.js";
import { h, render } from "../view/virtual-dom.js";
import { button } from "../view/components.js";

const image = new URL("../icon.svg", import.meta.url).href;

/**
 * @param {Element} root
 * @param {() => unknown} enter
 */
export function signInPage(root, enter) {
  let problem = "";
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
      problem = /** @type {Error} */ (error).message;
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
            // The user name for password managers.
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
              "aria-invalid": problem ? "true" : undefined,
              "aria-describedby": "key-help",
            }),
            h(
              "p",
              {
                id: "key-help",
                class: problem ? "wrong" : "hint",
                role: problem ? "alert" : undefined,
              },
              problem ||
                "The key is not stored in this browser. Create one: " +
                  "windlass keys create me --role admin -A module:app",
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
