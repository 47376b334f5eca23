/** Log lines of arbitrary output: no text is lost, and the cost is bounded. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Terminal, MAX_WIDTH, lengthOf } from "../job/log/ansi.js";
import { LogLines, textOfLine } from "../job/log/log-lines.js";
import { LineFilter } from "../job/log/line-filter.js";

const ESC = "\x1b";
const EVENT = 65_536; // characters that one event may have
const SECOND = 1000; // far more than is needed; what is quadratic takes minutes

/** Return the terminal's lines after writing the pieces. */
function lines(...pieces) {
  const terminal = new Terminal();
  const found = [];
  for (const piece of pieces) terminal.write(piece, (line) => found.push(line));
  return [...found, terminal.line];
}

const texts = (...pieces) =>
  lines(...pieces).map((parts) => parts.map(({ text }) => text).join(""));

let seq = 0;
const output = (text, stream = "stdout") => ({
  type: "output", seq: (seq += 1), at: new Date(0), data: { stream, text },
});

/** Run a call within a limit of CPU time. */
function within(limit, call) {
  const from = process.cpuUsage();
  const found = call();
  const took = process.cpuUsage(from).user / 1000;
  assert.ok(took < limit, `it took ${took} ms`);
  return found;
}

test("an unterminated escape sequence hides only its line", () => {
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

test("a very long line is wrapped without losing text", () => {
  const found = texts("x".repeat(MAX_WIDTH * 2 + 5), "y");
  assert.deepEqual(found.map((one) => one.length), [MAX_WIDTH, MAX_WIDTH, 6]);
  assert.equal(found.at(-1), "xxxxxy");
});

test("many color changes and overwrites stay fast", () => {
  const rainbow = Array.from({ length: EVENT / 7 }, (_, nth) => `${ESC}[3${nth % 8}mx`).join("");
  const over = `\r${"\rX".repeat(EVENT / 2)}`;
  const found = within(10 * SECOND, () => lines(...Array(20).fill(rainbow), over, over));
  const all = found.reduce((sum, line) => sum + lengthOf(line), 0);
  assert.equal(all, 20 * Math.floor(EVENT / 7));
});

test("cursor movement cannot create long lines", () => {
  const jumps = `${ESC}[99999999999999999999CX${ESC}[9999GX\n`.repeat(1000);
  const found = lines(jumps);
  const most = Math.max(...found.map(lengthOf));
  assert.ok(most < 1000, String(most));
  assert.deepEqual(texts(`abc${ESC}[99DX`), ["Xbc"]);
});

test("many newlines are processed in linear time", () => {
  const log = new LogLines();
  const message = `${"\n".repeat(EVENT)}x${"\n".repeat(10)}`;
  within(SECOND, () => log.add({ type: "log", seq: 1, at: new Date(0), data: { message } }));
  assert.equal(log.lines.length, EVENT + 1);
  assert.equal(textOfLine(log.lines.at(-1)), "x");
});

test("colon-separated parameters are grouped", () => {
  const style = (code) => lines(`${ESC}[${code}mx`)[0][0].style;
  assert.equal(style("38:2::255:0:0"), style("38;2;255;0;0"));
  assert.equal(style("38:2:255:0:0"), style("38;2;255;0;0"));
  assert.equal(style("38:5:1"), "fg-1");
  assert.equal(style("1;4:3"), "bold underline");
  assert.equal(style("1;4;4:0"), "bold");
});

test("an open line stays visible after its start was dropped", () => {
  const log = new LogLines();
  const first = output("0 %");
  log.add(first);
  for (let nth = 1; nth < 10; nth += 1) log.add(output(`\r${nth} %`));
  log.dropBefore(first.seq + 5);
  log.add(output("\r77 %"));
  assert.deepEqual(log.lines.map(textOfLine), ["77 %"]);
  assert.ok(log.firstOpen >= log.dropped);
});

test("many streams stay cheap", () => {
  const log = new LogLines();
  const filter = new LineFilter();
  within(5 * SECOND, () => {
    for (let nth = 0; nth < 200_000; nth += 1) log.add(output("x", `stream ${nth}`));
    filter.update(log, new Set(), "x");
  });
  assert.equal(log.lines.length, 200_000);
  assert.equal(filter.matches.length, 200_000);
  assert.ok(log.firstOpen > 199_000);
});
