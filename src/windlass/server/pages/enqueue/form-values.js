/** Conversion of form values to task arguments, with an error for each invalid value. */

/** @import { Field } from "./schema-fields.js" */

/** Values by field path: a string, or a boolean. */
/** @typedef {Map<string, string | boolean>} FormValues */

/**
 * Return the entered arguments, and errors by path. Omits empty fields unless they are required.
 *
 * @param {Field[]} fields
 * @param {FormValues} entered
 * @returns {{ values: Record<string, unknown>, errors: Map<string, string> }}
 */
export function readValues(fields, entered) {
  /** @type {Record<string, unknown>} */
  const values = {};
  /** @type {Map<string, string>} */
  const errors = new Map();
  for (const field of fields) {
    try {
      const value =
        field.kind === "group" ? readGroup(field, entered, errors) : readField(field, entered);
      if (value !== undefined) values[field.name] = value;
    } catch (error) {
      errors.set(field.path, /** @type {Error} */ (error).message);
    }
  }
  return { values, errors };
}

/** @param {Field} field @param {FormValues} entered @param {Map<string, string>} errors */
function readGroup(field, entered, errors) {
  const inner = readValues(field.fields, entered);
  const touched = Object.keys(inner.values).length > 0;
  if (!touched && !field.required) return undefined;
  for (const [path, text] of inner.errors) errors.set(path, text);
  return inner.values;
}

/** @param {Field} field @param {FormValues} entered */
function readField(field, entered) {
  const text = entered.get(field.path) ?? "";
  if (typeof text === "boolean") return text;
  if (text.trim() === "") {
    if (field.required && field.kind === "text") return text; // an empty string is valid
    if (field.required && field.kind === "lines") return [];
    if (field.required && field.nullable) return null;
    if (field.required) throw new Error("Required.");
    return undefined;
  }
  return parseField(field, text);
}

/** @param {Field} field @param {string} text */
function parseField(field, text) {
  switch (field.kind) {
    case "text":
      return text;
    case "number":
    case "integer":
      return parseNumber(text, field.kind);
    case "choice":
      return field.choices[Number(text)];
    case "lines":
      return parseLines(field, text);
    default:
      return parseJson(text);
  }
}

/** @param {string} text @param {string} kind */
function parseNumber(text, kind) {
  const value = Number(text);
  if (!Number.isFinite(value)) throw new Error("Enter a number.");
  if (kind === "integer" && !Number.isInteger(value)) throw new Error("Enter an integer.");
  if (Number.isInteger(value) && !Number.isSafeInteger(value) && /^\s*[-+]?\d+\s*$/.test(text)) {
    throw new Error("Too large for a browser, which would round it. Use windlass enqueue instead.");
  }
  return value;
}

/** @param {Field} field @param {string} text */
function parseLines(field, text) {
  const entries = text.split("\n").filter((line) => line.trim() !== "");
  return field.hint.includes("one number")
    ? entries.map((line) => parseNumber(line, "number"))
    : entries;
}

/** @param {string} text */
function parseJson(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`Invalid JSON: ${/** @type {Error} */ (error).message}`);
  }
}
