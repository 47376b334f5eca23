import assert from "node:assert/strict";
import { test } from "node:test";
import { SseParser } from "../windlass.js";

const message = (data, type = "message", id = null) => ({ type, data, id });

/** @type {[what: string, text: string, found: object[]][]} */
const STREAMS = [
  ["a message", "event: log\ndata: x\nid: 1-1\n\n", [message("x", "log", "1-1")]],
  ["lines that end with CR", "data: x\r\rdata: y\r\r", [message("x"), message("y")]],
  ["lines that end with CRLF", "data: x\r\n\r\ndata: y\r\n\r\n", [message("x"), message("y")]],
  ["mixed line ends", "data: x\r\ndata: y\rdata: z\n\r", [message("x\ny\nz")]],
  ["CRs that are line ends", "data: x\r\r\ndata: y\n\n", [message("x"), message("y")]],
  ["several lines of data", "data: x\ndata:\ndata: z\n\n", [message("x\n\nz")]],
  ["a byte order mark", "\ufeffdata: x\n\n", [message("x")]],
  ["a byte order mark that is text", "data: \ufeffx\n\n", [message("\ufeffx")]],
  ["characters of two to four bytes", "data: é€🏗\n\n", [message("é€🏗")]],
  ["comments", ": keepalive: 1\n\n:\ndata: x\n: y\n\n",
    [{ comment: "keepalive: 1" }, { comment: "" }, { comment: "y" }, message("x")]],
  ["a field without a colon", "data\n\n", [message("")]],
  ["only one leading space is removed", "data:  x\ndata:y \n\n", [message(" x\ny ")]],
  ["unknown fields", "retry: 5\ncolor: red\n: \ndata: x\n\n",
    [{ comment: "" }, message("x")]],
  ["an event without data is dropped", "event: log\nid: 1-1\n\ndata: x\n\n", [message("x")]],
  ["an id with NUL is ignored", "id: 1\0\ndata: x\n\n", [message("x")]],
  ["an id belongs to one message", "id: 7\ndata: x\n\ndata: y\n\n",
    [message("x", "message", "7"), message("y")]],
  ["an incomplete message at the end is dropped", "data: x\n\ndata: y\n", [message("x")]],
  ["characters that are no line ends", "data: x\u2028y\u0085z\v\n\n",
    [message("x\u2028y\u0085z\v")]],
];

const read = (...pieces) => {
  const parser = new SseParser();
  return pieces.flatMap((piece) => parser.push(piece));
};

for (const [what, text, found] of STREAMS) {
  const bytes = new TextEncoder().encode(text);

  test(`parses ${what}`, () => assert.deepEqual(read(bytes), found));

  test(`parses ${what}, split anywhere`, () => {
    for (let at = 0; at <= bytes.length; at += 1) {
      assert.deepEqual(read(bytes.subarray(0, at), bytes.subarray(at)), found, `cut at ${at}`);
    }
  });

  test(`parses ${what}, byte by byte`, () => {
    assert.deepEqual(read(...Array.from(bytes, (byte) => Uint8Array.of(byte))), found);
  });
}

test("an id without data is remembered, as the standard requires", () => {
  const parser = new SseParser();
  parser.push(new TextEncoder().encode("id: 1-7\n\ndata: x\n\n"));
  assert.equal(parser.lastEventId, "1-7");
  parser.push(new TextEncoder().encode("id\ndata: x\n\n"));
  assert.equal(parser.lastEventId, "");
});
