/**
 * Conversion of a task's argument schema to form fields. Types without a field (unions, lists of
 * objects) are entered as JSON.
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
  const others = options.filter((option) => option.type !== "null");
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
