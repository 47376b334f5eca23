/** Rendering of form fields. */

/** @import { Renderable } from "../view/virtual-dom.js" */
/** @import { FormValues } from "./form-values.js" */
/** @import { Field } from "./schema-fields.js" */

import { h } from "../view/virtual-dom.js";

/**
 * @typedef {object} FormState
 * @property {FormValues} values
 * @property {Map<string, string>} errors by path
 * @property {() => void} changed
 */

/** @param {Field[]} fields @param {FormState} state @returns {Renderable} */
export const formFields = (fields, state) =>
  fields.map((field) =>
    field.kind === "group"
      ? h(
          "fieldset",
          { key: field.path, class: "group" },
          h("legend", null, field.name, optional(field)),
          formFields(field.fields, state),
        )
      : labeledField(field, state),
  );

/** @param {Field} field @param {FormState} state */
function labeledField(field, state) {
  const id = `argument-${field.path}`;
  const error = state.errors.get(field.path);
  return h(
    "div",
    { class: "field", key: field.path },
    h("label", { for: id, class: "mono" }, field.name, optional(field)),
    control(field, state, {
      id,
      class: "input",
      "aria-invalid": error === undefined ? undefined : "true",
      "aria-describedby": `${id}-hint`,
    }),
    h(
      "p",
      { id: `${id}-hint`, class: error === undefined ? "hint" : "wrong", role: error && "alert" },
      error ?? [field.hint, field.hint && field.initial !== undefined && "; ", defaultHint(field)],
    ),
  );
}

/** @param {Field} field */
const optional = (field) => !field.required && h("span", { class: "faint small" }, " optional");

/** @param {Field} field */
const defaultHint = (field) =>
  field.initial === undefined ? null : `default: ${JSON.stringify(field.initial)}`;

/** @param {Field} field @param {FormState} state @param {Record<string, any>} props */
function control(field, state, props) {
  const value = state.values.get(field.path) ?? "";
  const write = (/** @type {string | boolean} */ now) => {
    if (now === "") state.values.delete(field.path);
    else state.values.set(field.path, now);
    state.errors.delete(field.path);
    state.changed();
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
 * @param {string[]} labels
 * @param {Field} field
 * @param {(text: string) => void} write
 * @param {boolean} [numbered] whether the value is an index, not the text
 */
const choice = (props, value, labels, field, write, numbered = false) =>
  h(
    "select",
    {
      ...props,
      value,
      onchange: (/** @type {Event} */ event) =>
        write(/** @type {HTMLSelectElement} */ (event.target).value),
    },
    h("option", { value: "" }, field.required ? "Select …" : "not set"),
    labels.map((label, index) => h("option", { value: numbered ? String(index) : label }, label)),
  );
