/**
 * Follows several jobs on one connection, watches a list that contains them, and prints each
 * callback as a line of JSON: `node follow-many.js URL TAG JOB…`.
 */

import { Windlass } from "../../windlass.js";

const [url, tag, ...jobs] = process.argv.slice(2);
const write = (value) => void process.stdout.write(`${JSON.stringify(value)}\n`);
const client = new Windlass({ url, backoff: { first: 20, attempts: 100, cap: 200 } });

const open = new Set(jobs);
const stop = client.watch({ tag }, ({ id, state, seq }) => {
  write({ snapshot: { id, state, seq } });
  if (state === "succeeded") open.delete(id);
  if (open.size === 0) stop();
});

client.followMany(Object.fromEntries(jobs.map((id) => [id, 0])), {
  onEvent: ({ jobId, id, type, data }) => write({ listener: jobId, event: { id, type, data } }),
  onConnection: (state) => write({ open: state.open }),
  onEnd: (event) => write({ ended: event?.jobId }),
  onError: (error) => {
    throw error;
  },
});
