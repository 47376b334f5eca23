/** The lines of a log, whatever a program writes: no text is lost, and no tab hangs. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Terminal, WIDEST, lengthOf } from "../job/ansi.js";
import { Book, textOfLine } from "../job/book.js";
import { Shown } from "../job/shown.js";

const ESC = "\x1b";
const EVENT = 65_536; // characters that one event may have
const SECOND = 1000; // far more than is needed; what is quadratic takes minutes

/** The lines that a terminal shows of what is written to it, piece by piece. */
function lines(...pieces) {
  const terminal = new Terminal();
  const found = [];
  for (const piece of pieces) terminal.write(piece, (line) => found.push(line));
  return [...found, terminal.line];
}

const texts = (...pieces) => lines(...pieces).map((parts) => parts.map(({ text }) => text).join(""));

let seq = 0;
const output = (text, stream = "stdout") => ({
  type: "output", seq: (seq += 1), at: new Date(0), data: { stream, text },
});

/** At most so much of a processor's time, and what it gave. */
function within(limit, call) {
  const from = process.cpuUsage();
  const found = call();
  const took = process.cpuUsage(from).user / 1000;
  assert.ok(took < limit, `it took ${took} ms`);
  return found;
}

test("a command that never ends hides no more than its line", () => {
  assert.deepEqual(texts(`${ESC}]0;title\nline one\n`, "line two\n"), [
    "]0;title", "line one", "line two", "",
  ]);
  assert.deepEqual(texts(`a${ESC}P`, "b\n", "c"), ["aPb", "c"]);
  assert.deepEqual(texts(`a${ESC}]8;;http://x${ESC}\\b${ESC}]8;;\x07c`), ["abc"]);
  assert.deepEqual(texts(`a${ESC}[3`, "1mb"), ["ab"]);
  const many = Array.from({ length: 100 }, (_, nth) => `line ${nth}\n`);
  const rest = texts(`${ESC}]0;`, ...many).slice(1, 100);
  assert.deepEqual(rest, many.slice(1).map((one) => one.trim()));
});

test("a line that never ends goes on in the next, and all of it is there", () => {
  const found = texts("x".repeat(WIDEST * 2 + 5), "y");
  assert.deepEqual(found.map((one) => one.length), [WIDEST, WIDEST, 6]);
  assert.equal(found.at(-1), "xxxxxy");
});

test("colours that change with each letter, and letters written over them, take no time", () => {
  const rainbow = Array.from({ length: EVENT / 7 }, (_, nth) => `${ESC}[3${nth % 8}mx`).join("");
  const over = `\r${"\rX".repeat(EVENT / 2)}`;
  const found = within(10 * SECOND, () => lines(...Array(20).fill(rainbow), over, over));
  const all = found.reduce((sum, line) => sum + lengthOf(line), 0);
  assert.equal(all, 20 * Math.floor(EVENT / 7));
});

test("a few bytes become no great text", () => {
  const jumps = `${ESC}[99999999999999999999CX${ESC}[9999GX\n`.repeat(1000);
  const found = lines(jumps);
  const most = Math.max(...found.map(lengthOf));
  assert.ok(most < 1000, String(most));
  assert.deepEqual(texts(`abc${ESC}[99DX`), ["Xbc"]);
});

test("newlines without end, and then a letter, are looked at once", () => {
  const book = new Book();
  const message = `${"\n".repeat(EVENT)}x${"\n".repeat(10)}`;
  within(SECOND, () => book.add({ type: "log", seq: 1, at: new Date(0), data: { message } }));
  assert.equal(book.lines.length, EVENT + 1);
  assert.equal(textOfLine(book.lines.at(-1)), "x");
});

test("colons keep what belongs together together", () => {
  const look = (code) => lines(`${ESC}[${code}mx`)[0][0].look;
  assert.equal(look("38:2::255:0:0"), look("38;2;255;0;0"));
  assert.equal(look("38:2:255:0:0"), look("38;2;255;0;0"));
  assert.equal(look("38:5:1"), "fg-1");
  assert.equal(look("1;4:3"), "bold underline");
  assert.equal(look("1;4;4:0"), "bold");
});

test("a line that is written over for hours is still seen when its beginning was let go", () => {
  const book = new Book();
  const first = output("0 %");
  book.add(first);
  for (let nth = 1; nth < 10; nth += 1) book.add(output(`\r${nth} %`));
  book.dropBefore(first.seq + 5);
  book.add(output("\r77 %"));
  assert.deepEqual(book.lines.map(textOfLine), ["77 %"]);
  assert.ok(book.settled >= book.dropped);
});

test("as many streams as a task likes cost no more than some", () => {
  const book = new Book();
  const shown = new Shown();
  within(5 * SECOND, () => {
    for (let nth = 0; nth < 200_000; nth += 1) book.add(output("x", `stream ${nth}`));
    shown.update(book, new Set(), "x");
  });
  assert.equal(book.lines.length, 200_000);
  assert.equal(shown.matches.length, 200_000);
  assert.ok(book.settled > 199_000);
});
