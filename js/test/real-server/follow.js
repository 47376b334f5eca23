/**
 * Follows a job on a real server and prints each callback as a line of JSON:
 * `node follow.js URL JOB`. Three listeners: from the start, a moment later, and an iterator that
 * is slower than the job.
 */

import { setTimeout as sleep } from "node:timers/promises";
import { Windlass } from "../../windlass.js";

const [url, job] = process.argv.slice(2);
const write = (value) => void process.stdout.write(`${JSON.stringify(value)}\n`);
const note = (text) => write({ log: text });
const log = { debug() {}, warn: note, error: note };
const client = new Windlass({ url, log, backoff: { first: 20, attempts: 100, cap: 200 } });

const fieldsOf = ({ id, type, data }) => ({ id, type, data });

const listen = (listener) =>
  new Promise((resolve, reject) => {
    client.follow(job, {
      onEvent: (event) => write({ listener, event: fieldsOf(event) }),
      onProgress: (percent) => write({ listener, percent }),
      onConnection: ({ open }) => write({ listener, open }),
      onEnd: resolve,
      onError: reject,
    });
  });

async function readSlowly() {
  for await (const event of client.events(job)) {
    write({ listener: "slow", event: fieldsOf(event) });
    await sleep(2);
  }
}

const first = listen("first");
await sleep(50);
await Promise.all([first, listen("late"), readSlowly()]);
const { state } = await client.get(job);
write({ state });
