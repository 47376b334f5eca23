/** The fields of a form, drawn. */

/** @import { Given } from "../view/dom.js" */
/** @import { Field, Written } from "./schema.js" */

import { h } from "../view/dom.js";

/**
 * @typedef {object} Filling
 * @property {Written} written
 * @property {Map<string, string>} wrong by path
 * @property {() => void} changed
 */

/** @param {Field[]} fields @param {Filling} filling @returns {Given} */
export const drawn = (fields, filling) =>
  fields.map((field) =>
    field.kind === "group"
      ? h(
          "fieldset",
          { key: field.path, class: "group" },
          h("legend", null, field.name, optional(field)),
          drawn(field.fields, filling),
        )
      : labelled(field, filling),
  );

/** @param {Field} field @param {Filling} filling */
function labelled(field, filling) {
  const id = `argument-${field.path}`;
  const wrong = filling.wrong.get(field.path);
  return h(
    "div",
    { class: "field", key: field.path },
    h("label", { for: id, class: "mono" }, field.name, optional(field)),
    control(field, filling, {
      id,
      class: "input",
      "aria-invalid": wrong === undefined ? undefined : "true",
      "aria-describedby": `${id}-hint`,
    }),
    h(
      "p",
      { id: `${id}-hint`, class: wrong === undefined ? "hint" : "wrong", role: wrong && "alert" },
      wrong ?? [field.hint, field.hint && field.initial !== undefined && "; ", initial(field)],
    ),
  );
}

/** @param {Field} field */
const optional = (field) => !field.required && h("span", { class: "faint small" }, " optional");

/** @param {Field} field */
const initial = (field) =>
  field.initial === undefined ? null : `${JSON.stringify(field.initial)} if left empty`;

/** @param {Field} field @param {Filling} filling @param {Record<string, any>} props */
function control(field, filling, props) {
  const value = filling.written.get(field.path) ?? "";
  const write = (/** @type {string | boolean} */ now) => {
    if (now === "") filling.written.delete(field.path);
    else filling.written.set(field.path, now);
    filling.wrong.delete(field.path);
    filling.changed();
  };
  const oninput = (/** @type {InputEvent} */ event) =>
    write(/** @type {HTMLInputElement} */ (event.target).value);
  switch (field.kind) {
    case "boolean":
      return choice(props, String(value), ["true", "false"], field, (text) =>
        write(text === "" ? "" : text === "true"),
      );
    case "choice":
      return choice(props, String(value), field.choices.map(String), field, write, true);
    case "json":
    case "lines":
      return h("textarea", {
        ...props,
        value: String(value),
        oninput,
        spellcheck: "false",
        rows: 4,
      });
    default:
      return h("input", {
        ...props,
        value: String(value),
        oninput,
        inputmode: field.kind === "text" ? undefined : "decimal",
        autocomplete: "off",
      });
  }
}

/**
 * @param {Record<string, any>} props
 * @param {string} value
 * @param {string[]} words
 * @param {Field} field
 * @param {(text: string) => void} write
 * @param {boolean} [numbered] whether the value is the place of a word, not the word
 */
const choice = (props, value, words, field, write, numbered = false) =>
  h(
    "select",
    {
      ...props,
      value,
      onchange: (/** @type {Event} */ event) =>
        write(/** @type {HTMLSelectElement} */ (event.target).value),
    },
    h("option", { value: "" }, field.required ? "choose …" : "not given"),
    words.map((word, place) => h("option", { value: numbered ? String(place) : word }, word)),
  );
