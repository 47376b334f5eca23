/**
 * From the JSON schema of a task's arguments to fields that a person can fill, and from what they
 * wrote back to the arguments. What a field cannot say (a union, a list of objects) is written as
 * JSON.
 */

/** @typedef {Record<string, any>} Schema */

/**
 * @typedef {object} Field
 * @property {string} path its place among the arguments: `size.width`
 * @property {string} name
 * @property {"text" | "number" | "integer" | "boolean" | "choice" | "lines" | "json" | "group"} kind
 * @property {boolean} required
 * @property {boolean} nullable
 * @property {string} hint
 * @property {unknown} initial what is taken if nothing is written; undefined if nothing is
 * @property {unknown[]} choices
 * @property {Field[]} fields of a group
 */

/** What was written, by the field's path: a text, or for a boolean `true`, `false` or `""`. */
/** @typedef {Map<string, string | boolean>} Written */

const DEEP = 4; // groups within groups; what is deeper is JSON

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
  const needed = new Set(schema.required ?? []);
  return Object.entries(schema.properties ?? {}).map(([name, given]) =>
    fieldOf(name, /** @type {Schema} */ (given), root, prefix + name, needed.has(name), depth),
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
  const { schema, nullable } = plain(given, root);
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
 * Without references, and without the null of what may be missing.
 *
 * @param {Schema} given
 * @param {Schema} root
 * @returns {{ schema: Schema, nullable: boolean }}
 */
function plain(given, root) {
  const schema = followed(given, root);
  const options = /** @type {Schema[]} */ (schema.anyOf ?? schema.oneOf ?? []);
  const others = options.filter((one) => one.type !== "null");
  if (others.length !== 1 || others.length === options.length) return { schema, nullable: false };
  const inner = followed(others[0], root);
  return {
    schema: { ...inner, description: schema.description ?? inner.description },
    nullable: true,
  };
}

/** @param {Schema} schema @param {Schema} root @returns {Schema} */
function followed(schema, root) {
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
      return schema.properties !== undefined && depth < DEEP ? "group" : "json";
    default:
      return "json";
  }
}

const FORMATS = {
  "date-time": "a time: 2026-01-31T12:00:00Z",
  date: "a day: 2026-01-31",
  uuid: "a UUID",
  duration: "a length: PT5M",
  uri: "an address",
  email: "an e-mail address",
  "file-path": "a file",
  binary: "bytes",
};

/** @param {Schema} schema @param {Field["kind"]} kind */
function hintOf(schema, kind) {
  const words = [
    schema.description,
    kind === "lines"
      ? `one ${schema.items.type === "string" ? "text" : "number"} on each line`
      : null,
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
    schema.pattern !== undefined ? `like ${schema.pattern}` : null,
  ];
  return words.filter((word) => word).join("; ");
}

/**
 * The arguments that were written, and what is wrong with them, by path. What was left empty is left
 * out, unless it is needed.
 *
 * @param {Field[]} fields
 * @param {Written} written
 * @returns {{ values: Record<string, unknown>, wrong: Map<string, string> }}
 */
export function read(fields, written) {
  /** @type {Record<string, unknown>} */
  const values = {};
  /** @type {Map<string, string>} */
  const wrong = new Map();
  for (const field of fields) {
    try {
      const value = field.kind === "group" ? group(field, written, wrong) : one(field, written);
      if (value !== undefined) values[field.name] = value;
    } catch (error) {
      wrong.set(field.path, /** @type {Error} */ (error).message);
    }
  }
  return { values, wrong };
}

/** @param {Field} field @param {Written} written @param {Map<string, string>} wrong */
function group(field, written, wrong) {
  const inner = read(field.fields, written);
  const touched = Object.keys(inner.values).length > 0;
  if (!touched && !field.required) return undefined;
  for (const [path, text] of inner.wrong) wrong.set(path, text);
  return inner.values;
}

/** @param {Field} field @param {Written} written */
function one(field, written) {
  const text = written.get(field.path) ?? "";
  if (typeof text === "boolean") return text;
  if (text.trim() === "") {
    if (field.required && field.kind === "text") return text; // an empty text is one, too
    if (field.required && field.kind === "lines") return [];
    if (field.required && field.nullable) return null;
    if (field.required) throw new Error("It is needed.");
    return undefined;
  }
  return parsed(field, text);
}

/** @param {Field} field @param {string} text */
function parsed(field, text) {
  switch (field.kind) {
    case "text":
      return text;
    case "number":
    case "integer":
      return numeral(text, field.kind);
    case "choice":
      return field.choices[Number(text)];
    case "lines":
      return lines(field, text);
    default:
      return fromJson(text);
  }
}

/** @param {string} text @param {string} kind */
function numeral(text, kind) {
  const value = Number(text);
  if (!Number.isFinite(value)) throw new Error("It is no number.");
  if (kind === "integer" && !Number.isInteger(value)) throw new Error("It is no whole number.");
  if (Number.isInteger(value) && !Number.isSafeInteger(value) && /^\s*[-+]?\d+\s*$/.test(text)) {
    throw new Error("A browser would round a number so large: windlass enqueue does not.");
  }
  return value;
}

/** @param {Field} field @param {string} text */
function lines(field, text) {
  const found = text.split("\n").filter((line) => line.trim() !== "");
  return field.hint.includes("one number") ? found.map((line) => numeral(line, "number")) : found;
}

/** @param {string} text */
function fromJson(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`It is no JSON: ${/** @type {Error} */ (error).message}`);
  }
}
