/**
 * Follows many jobs on one connection, watches the list that they are on, and writes down what it
 * hears: `node many.js URL TAG JOB…`.
 */

import { Windlass } from "../../windlass.js";

const [url, tag, ...jobs] = process.argv.slice(2);
const write = (said) => void process.stdout.write(`${JSON.stringify(said)}\n`);
const client = new Windlass({ url, backoff: { first: 20, attempts: 100, cap: 200 } });

const open = new Set(jobs);
const stop = client.watch({ tag }, ({ id, state, seq }) => {
  write({ snapshot: { id, state, seq } });
  if (state === "succeeded") open.delete(id);
  if (open.size === 0) stop();
});

client.followMany(Object.fromEntries(jobs.map((id) => [id, 0])), {
  onEvent: ({ jobId, id, type, data }) => write({ who: jobId, event: { id, type, data } }),
  onConnection: (state) => write({ open: state.open }),
  onEnd: (event) => write({ ended: event?.jobId }),
  onError: (error) => {
    throw error;
  },
});
