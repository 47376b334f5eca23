/**
 * Follows a job on a real server and writes down what it hears, a line of JSON for each thing:
 * `node follow.js URL JOB`. Three listen: from the beginning, a moment later, and with an iterator
 * that is slower than the job.
 */

import { setTimeout as sleep } from "node:timers/promises";
import { Windlass } from "../../windlass.js";

const [url, job] = process.argv.slice(2);
const write = (said) => void process.stdout.write(`${JSON.stringify(said)}\n`);
const note = (text) => write({ log: text });
const log = { debug() {}, warn: note, error: note };
const client = new Windlass({ url, log, backoff: { first: 20, attempts: 100, cap: 200 } });

const told = ({ id, type, data }) => ({ id, type, data });

const listen = (who) =>
  new Promise((resolve, reject) => {
    client.follow(job, {
      onEvent: (event) => write({ who, event: told(event) }),
      onProgress: (percent) => write({ who, percent }),
      onConnection: ({ open }) => write({ who, open }),
      onEnd: resolve,
      onError: reject,
    });
  });

async function dawdle() {
  for await (const event of client.events(job)) {
    write({ who: "slow", event: told(event) });
    await sleep(2);
  }
}

const first = listen("first");
await sleep(50);
await Promise.all([first, listen("late"), dawdle()]);
const { state } = await client.get(job);
write({ state });
