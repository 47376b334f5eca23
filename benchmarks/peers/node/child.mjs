// What windlass.bench.child does, for a side written in JavaScript: the same roles, the same words.
//
//     node child.mjs SCRIPT HOME fill SINGLES TOGETHER OTHERS | trickle COUNT PAUSE GAP | work
//
// SCRIPT exports open(place, library): {put, putMany, work(ledger), close}; HOME has its packages.

import fs from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const BULK = 1000, TOGETHER = 100;
const FLUSH = 3; // milliseconds
const now = () => process.hrtime.bigint(); // CLOCK_MONOTONIC, as in Python
const seconds = (from) => Number(now() - from) / 1e9;
const tell = (values) => fs.writeSync(1, JSON.stringify(values) + "\n");
const pause = (s) => new Promise((done) => setTimeout(done, s * 1000));
const payload = (number) => String(number).padStart(8, "0").padEnd(100, "x");

let go;
const gone = new Promise((done) => (go = done));
process.stdin.on("data", () => go());
process.stdin.on("end", () => process.exit(0)); // the bench is gone
process.on("SIGTERM", () => process.exit(0));

// The file of windlass.bench.ledger, written out every few milliseconds.
class Ledger {
  constructor(place) {
    const stamps = place.stamps ? 8 * place.jobs : 0;
    this.bytes = Buffer.alloc(8 + stamps + place.jobs);
    this.stamps = place.stamps;
    this.runs = this.bytes.subarray(8 + stamps);
    this.count = 0;
    this.file = fs.openSync(`${process.pid}.ledger`, "w+");
    this.flush();
    process.on("exit", () => this.flush());
  }

  async begin() {
    tell({ event: "ready" });
    await gone;
    tell({ event: "started", at: Number(now()) });
  }

  ran(text) {
    const at = this.stamps ? now() : 0n;
    const number = Number(text.slice(0, 8));
    if (this.runs[number] === 0) {
      this.count += 1;
      if (this.stamps) this.bytes.writeBigUInt64LE(at, 8 + 8 * number);
    }
    this.runs[number] = Math.min(255, this.runs[number] + 1);
    this.waiting ??= setTimeout(() => this.flush(), FLUSH);
  }

  flush() {
    this.waiting = undefined;
    this.bytes.writeBigUInt64LE(BigInt(this.count));
    fs.writeSync(this.file, this.bytes, 0, this.bytes.length, 0);
  }
}

async function rate(texts, size, put) {
  const began = now();
  for (let start = 0; start < texts.length; start += size) {
    await put(texts.slice(start, start + size));
  }
  return texts.length ? texts.length / seconds(began) : null;
}

async function fill(side, singles, together, others) {
  const texts = Array.from({ length: singles + together + others }, (_, n) => payload(n));
  await side.put(texts[0]);
  const single = await rate(texts.slice(1, singles), 1, ([text]) => side.put(text));
  const some = texts.slice(singles, singles + together);
  const atOnce = await rate(some, TOGETHER, (part) => Promise.all(part.map(side.put)));
  const bulk = await rate(texts.slice(singles + together), BULK, side.putMany);
  tell({ event: "filled", single, together: atOnce, bulk });
}

async function trickle(side, count, wait, gap) {
  await side.put(payload(0));
  tell({ event: "pausing" });
  await pause(wait);
  const puts = [];
  for (let number = 1; number <= count; number++) {
    const before = now();
    await side.put(payload(number));
    puts.push([number, Number(before), Number(now())]);
    await pause(gap);
  }
  tell({ event: "trickled", puts });
}

const [script, home, role, ...numbers] = process.argv.slice(2);
const place = JSON.parse(fs.readFileSync("round.json", "utf8"));
const library = createRequire(`${home}/package.json`);
const load = (name) => import(pathToFileURL(library.resolve(name)).href);
const side = await (await import(script)).open(place, load);
if (role === "fill") await fill(side, ...numbers.map(Number));
else if (role === "trickle") await trickle(side, ...numbers.map(Number));
else await side.work(new Ledger(place));
if (role !== "work") {
  await side.close();
  process.exit(0);
}
