/**
 * Conversion of a task's argument schema to form fields, and of form values to arguments. Types
 * without a field (unions, lists of objects) are entered as JSON.
 */

/** @typedef {Record<string, any>} Schema */

/**
 * @typedef {object} Field
 * @property {string} path in the arguments, as `size.width`
 * @property {string} name
 * @property {"text" | "number" | "integer" | "boolean" | "choice" | "lines" | "json" | "group"} kind
 * @property {boolean} required
 * @property {boolean} nullable
 * @property {string} hint
 * @property {unknown} initial default value, or undefined
 * @property {unknown[]} choices
 * @property {Field[]} fields of a group
 */

/** Values by field path: a string, or a boolean. */
/** @typedef {Map<string, string | boolean>} FormValues */

const MAX_DEPTH = 4; // nested groups; deeper objects are JSON

/**
 * @param {Schema} schema
 * @returns {Field[]}
 */
export function fieldsOf(schema) {
  return propertiesOf(schema, schema, "", 0);
}

/**
 * @param {Schema} schema of an object
 * @param {Schema} root with the definitions
 * @param {string} prefix
 * @param {number} depth
 * @returns {Field[]}
 */
function propertiesOf(schema, root, prefix, depth) {
  const required = new Set(schema.required ?? []);
  return Object.entries(schema.properties ?? {}).map(([name, given]) =>
    fieldOf(name, /** @type {Schema} */ (given), root, prefix + name, required.has(name), depth),
  );
}

/**
 * @param {string} name
 * @param {Schema} given
 * @param {Schema} root
 * @param {string} path
 * @param {boolean} required
 * @param {number} depth
 * @returns {Field}
 */
function fieldOf(name, given, root, path, required, depth) {
  const { schema, nullable } = resolve(given, root);
  const kind = kindOf(schema, depth);
  return {
    path,
    name,
    kind,
    required,
    nullable,
    hint: hintOf(schema, kind),
    initial: given.default ?? schema.default,
    choices: schema.enum ?? (schema.const !== undefined ? [schema.const] : []),
    fields: kind === "group" ? propertiesOf(schema, root, `${path}.`, depth + 1) : [],
  };
}

/**
 * Resolve references, and remove null from an optional type.
 *
 * @param {Schema} given
 * @param {Schema} root
 * @returns {{ schema: Schema, nullable: boolean }}
 */
function resolve(given, root) {
  const schema = dereference(given, root);
  const options = /** @type {Schema[]} */ (schema.anyOf ?? schema.oneOf ?? []);
  const others = options.filter((one) => one.type !== "null");
  if (others.length !== 1 || others.length === options.length) return { schema, nullable: false };
  const inner = dereference(others[0], root);
  return {
    schema: { ...inner, description: schema.description ?? inner.description },
    nullable: true,
  };
}

/** @param {Schema} schema @param {Schema} root @returns {Schema} */
function dereference(schema, root) {
  const name = /^#\/\$defs\/(.+)$/.exec(schema.$ref ?? "")?.[1];
  const found = name === undefined ? undefined : root.$defs?.[name];
  return found === undefined ? schema : { ...found, ...schema, $ref: undefined };
}

/** @param {Schema} schema @param {number} depth @returns {Field["kind"]} */
function kindOf(schema, depth) {
  if (schema.enum !== undefined || schema.const !== undefined) return "choice";
  switch (schema.type) {
    case "string":
      return "text";
    case "number":
    case "integer":
    case "boolean":
      return schema.type;
    case "array":
      return ["string", "number", "integer"].includes(schema.items?.type) && !schema.items.enum
        ? "lines"
        : "json";
    case "object":
      return schema.properties !== undefined && depth < MAX_DEPTH ? "group" : "json";
    default:
      return "json";
  }
}

const FORMATS = {
  "date-time": "a time: 2026-01-31T12:00:00Z",
  date: "a day: 2026-01-31",
  uuid: "a UUID",
  duration: "a duration: PT5M",
  uri: "a URL",
  email: "an e-mail address",
  "file-path": "a file path",
  binary: "bytes",
};

/** @param {Schema} schema @param {Field["kind"]} kind */
function hintOf(schema, kind) {
  const words = [
    schema.description,
    kind === "lines" ? `one ${schema.items.type === "string" ? "text" : "number"} per line` : null,
    kind === "json"
      ? `as JSON${schema.type === "array" ? ": a list" : schema.type === "object" ? ": an object" : ""}`
      : null,
    FORMATS[/** @type {keyof typeof FORMATS} */ (schema.format)],
    schema.minimum !== undefined ? `at least ${schema.minimum}` : null,
    schema.exclusiveMinimum !== undefined ? `more than ${schema.exclusiveMinimum}` : null,
    schema.maximum !== undefined ? `at most ${schema.maximum}` : null,
    schema.exclusiveMaximum !== undefined ? `less than ${schema.exclusiveMaximum}` : null,
    schema.minLength ? `at least ${schema.minLength} characters` : null,
    schema.maxLength !== undefined ? `at most ${schema.maxLength} characters` : null,
    schema.pattern !== undefined ? `pattern ${schema.pattern}` : null,
  ];
  return words.filter((word) => word).join("; ");
}

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
