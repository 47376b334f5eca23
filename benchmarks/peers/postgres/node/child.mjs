// The roles and events of benchmarks.peers.child.roles, for adapters written in JavaScript.
//
//     node child.mjs SCRIPT HOME fill SINGLE CONCURRENT BULK | enqueue_spaced COUNT PAUSE GAP | work
//
// SCRIPT exports open(config, library): {enqueue, enqueueBulk, work(ledger), close}; HOME has its packages.

import fs from "node:fs";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const BULK_SIZE = 1000, CONCURRENT_CALLS = 100;
const FLUSH = 3; // milliseconds
const now = () => process.hrtime.bigint(); // CLOCK_MONOTONIC, as in Python
const seconds = (from) => Number(now() - from) / 1e9;
const sendEvent = (values) => fs.writeSync(1, JSON.stringify(values) + "\n");
const pause = (s) => new Promise((resolve) => setTimeout(resolve, s * 1000));
const payload = (number) => String(number).padStart(8, "0").padEnd(100, "x");

let start;
const started = new Promise((resolve) => (start = resolve));
process.stdin.on("data", () => start());
process.stdin.on("end", () => process.exit(0)); // the bench has ended
process.on("SIGTERM", () => process.exit(0));

// The ledger file of benchmarks.peers.child.job_ledger, written every few milliseconds.
class JobLedger {
  constructor(config) {
    const stamps = config.stamps ? 8 * config.jobs : 0;
    this.bytes = Buffer.alloc(8 + stamps + config.jobs);
    this.stamps = config.stamps;
    this.runs = this.bytes.subarray(8 + stamps);
    this.count = 0;
    this.file = fs.openSync(`${process.pid}.ledger`, "w+");
    this.flush();
    process.on("exit", () => this.flush());
  }

  async waitForStart() {
    sendEvent({ event: "ready" });
    await started;
    sendEvent({ event: "started", at: Number(now()) });
  }

  recordRun(text) {
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

async function rate(texts, size, enqueue) {
  const began = now();
  for (let start = 0; start < texts.length; start += size) {
    await enqueue(texts.slice(start, start + size));
  }
  return texts.length ? texts.length / seconds(began) : null;
}

async function fill(adapter, singleJobs, concurrentJobs, bulkJobs) {
  const texts = Array.from({ length: singleJobs + concurrentJobs + bulkJobs }, (_, n) => payload(n));
  await adapter.enqueue(texts[0]);
  const single = await rate(texts.slice(1, singleJobs), 1, ([text]) => adapter.enqueue(text));
  const concurrentTexts = texts.slice(singleJobs, singleJobs + concurrentJobs);
  const concurrent = await rate(concurrentTexts, CONCURRENT_CALLS, (part) => Promise.all(part.map(adapter.enqueue)));
  const bulk = await rate(texts.slice(singleJobs + concurrentJobs), BULK_SIZE, adapter.enqueueBulk);
  sendEvent({ event: "filled", single, concurrent, bulk });
}

async function enqueueSpaced(adapter, count, wait, gap) {
  await adapter.enqueue(payload(0));
  sendEvent({ event: "pausing" });
  await pause(wait);
  const calls = [];
  for (let number = 1; number <= count; number++) {
    const before = now();
    await adapter.enqueue(payload(number));
    calls.push([number, Number(before), Number(now())]);
    await pause(gap);
  }
  sendEvent({ event: "enqueued", calls });
}

const [script, home, role, ...numbers] = process.argv.slice(2);
const config = JSON.parse(fs.readFileSync("round.json", "utf8"));
const library = createRequire(`${home}/package.json`);
const load = (name) => import(pathToFileURL(library.resolve(name)).href);
const adapter = await (await import(script)).open(config, load);
if (role === "fill") await fill(adapter, ...numbers.map(Number));
else if (role === "enqueue_spaced") await enqueueSpaced(adapter, ...numbers.map(Number));
else await adapter.work(new JobLedger(config));
if (role !== "work") {
  await adapter.close();
  process.exit(0);
}
