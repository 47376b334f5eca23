/** What somebody writes into a form, as the arguments of a task: as it was written, or not at all. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { fieldsOf, read } from "../enqueue/schema.js";

const FIELDS = fieldsOf({
  properties: {
    count: { type: "integer" },
    ratio: { type: "number" },
    ids: { type: "array", items: { type: "integer" } },
  },
});

const given = (written) => {
  const { values, wrong } = read(FIELDS, new Map(Object.entries(written)));
  return wrong.size > 0 ? [...wrong.keys()] : values;
};

test("a number that a browser would round is not sent", () => {
  assert.deepEqual(given({ count: "9007199254740991" }), { count: 9007199254740991 });
  assert.deepEqual(given({ count: "9007199254740993" }), ["count"]);
  assert.deepEqual(given({ ids: "1\n-9007199254740993" }), ["ids"]);
});

test("what JSON has no word for is not sent as nothing", () => {
  assert.deepEqual(given({ ratio: "Infinity" }), ["ratio"]);
  assert.deepEqual(given({ ratio: "1e400" }), ["ratio"]);
  assert.deepEqual(given({ ratio: "1e300" }), { ratio: 1e300 });
  assert.deepEqual(given({ ratio: " 2.5 " }), { ratio: 2.5 });
});
