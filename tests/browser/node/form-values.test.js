/** Form values as task arguments: exact, or an error. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { readValues } from "../enqueue/form-values.js";
import { fieldsOf } from "../enqueue/schema-fields.js";

const FIELDS = fieldsOf({
  properties: {
    count: { type: "integer" },
    ratio: { type: "number" },
    ids: { type: "array", items: { type: "integer" } },
  },
});

const parse = (entered) => {
  const { values, errors } = readValues(FIELDS, new Map(Object.entries(entered)));
  return errors.size > 0 ? [...errors.keys()] : values;
};

test("a number that a browser would round is an error", () => {
  assert.deepEqual(parse({ count: "9007199254740991" }), { count: 9007199254740991 });
  assert.deepEqual(parse({ count: "9007199254740993" }), ["count"]);
  assert.deepEqual(parse({ ids: "1\n-9007199254740993" }), ["ids"]);
});

test("a number that JSON cannot represent is an error", () => {
  assert.deepEqual(parse({ ratio: "Infinity" }), ["ratio"]);
  assert.deepEqual(parse({ ratio: "1e400" }), ["ratio"]);
  assert.deepEqual(parse({ ratio: "1e300" }), { ratio: 1e300 });
  assert.deepEqual(parse({ ratio: " 2.5 " }), { ratio: 2.5 });
});
