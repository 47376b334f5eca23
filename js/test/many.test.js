/** Many jobs on one connection. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { ears, manySaid, setUp } from "./support/server.js";

const [A, B] = ["0189-a", "0189-b"];
const DONE = ["job-completed", { status: "succeeded", percent: 100 }];
const vector = (call) => call.url.searchParams.get("after");

function hearing() {
  const heard = ears();
  const log = [];
  return { ...heard, log, onEvent: (event) => void log.push([event.jobId, event.seq]) };
}

test("each named job goes on from its own cursor, through broken connections", async () => {
  const { client, server, clock } = setUp();
  const heard = hearing();
  client.followMany({ [A]: 0, [B]: "1004-4" }, heard);
  await clock.pass(0);
  server.line.send(manySaid(A, 1), manySaid(B, 5), manySaid(A, 2), manySaid(A, 2));
  await clock.pass(0);
  server.line.tear();
  await clock.pass(1000);
  server.line.send(manySaid(B, 5), manySaid(B, 6, ...DONE), manySaid(A, 3));
  await clock.pass(0);
  server.line.end();
  await clock.pass(1000);
  server.line.send(manySaid(A, 4, ...DONE));
  await clock.pass(100_000);
  assert.deepEqual(server.calls.map(vector), [`${A}:0,${B}:4`, `${A}:2,${B}:5`, `${A}:3,${B}:6`]);
  assert.deepEqual(heard.log, [[A, 1], [B, 5], [A, 2], [B, 6], [A, 3], [A, 4]]);
  assert.deepEqual(heard.ends, ["job-completed", "job-completed"]);
  assert.equal(server.line.aborted, true);
});

test("an event out of order breaks the connection, and costs none", async () => {
  const { client, server, clock, logged } = setUp();
  const heard = hearing();
  client.followMany({ [A]: 0 }, heard);
  await clock.pass(0);
  server.line.send(manySaid(A, 1), manySaid(A, 3), manySaid(A, 2));
  await clock.pass(1000);
  assert.match(logged[0], /event 3 of job 0189-a came out of order/);
  server.line.send(manySaid(A, 2), manySaid(A, 3, ...DONE));
  await clock.pass(0);
  assert.deepEqual(heard.log, [[A, 1], [A, 2], [A, 3]]);
});

test("progress is kept apart for each job", async () => {
  const { client, server, clock } = setUp();
  const heard = hearing();
  client.followMany({ [A]: 0, [B]: 0 }, heard);
  await clock.pass(0);
  const step = (job, seq, progressPct) => manySaid(job, seq, "step-progress", { progressPct });
  server.line.send(step(A, 1, 50), step(B, 1, 10), step(A, 2, 40), step(B, 2, 20));
  await clock.pass(0);
  assert.deepEqual(heard.percents, [50, 10, 20]);
});

test("204 tells that all of them had ended", async () => {
  const { client, server, clock } = setUp();
  server.empty();
  const heard = hearing();
  client.followMany({ [A]: 3, [B]: 4 }, heard);
  await clock.pass(100_000);
  assert.deepEqual([heard.ends, server.calls.length], [[null, null], 1]);
});

test("a refusal, and what the server says of itself, are told apart", async () => {
  const { client, server, clock } = setUp();
  const heard = hearing();
  client.followMany({ [A]: 0 }, heard);
  await clock.pass(0);
  server.line.send('event: error\ndata: {"message": "the disk is on fire"}\n\n');
  server.problem(404);
  await clock.pass(100_000);
  assert.deepEqual(heard.connections, ["open", 1000]);
  assert.deepEqual(heard.errors.map((error) => error.status), [404]);
});

const snapshot = (id, seq, state) =>
  `event: snapshot\ndata: ${JSON.stringify({ id, seq, state, percent: 0 })}\n\n`;

test("of a list, each job's newest snapshot is told, once", async () => {
  const { client, server, clock } = setUp();
  const told = [];
  const tell = ({ id, seq, state }) => void told.push([id, seq, state]);
  const stop = client.watch({ queue: ["media", "x"], state: "queued" }, tell);
  await clock.pass(0);
  const { searchParams } = server.calls[0].url;
  assert.deepEqual(searchParams.getAll("queue"), ["media", "x"]);
  server.line.send(snapshot(A, 2, "queued"), snapshot(B, 2, "queued"), snapshot(A, 3, "running"));
  await clock.pass(0);
  server.line.tear();
  await clock.pass(1000);
  server.line.send(snapshot(A, 2, "queued"), snapshot(B, 2, "queued"), snapshot(A, 4, "failed"));
  server.line.send(`event: snapshot\ndata: {"id": "${B}", "state": null}\n\n`);
  await clock.pass(0);
  assert.deepEqual(told, [
    [A, 2, "queued"], [B, 2, "queued"], [A, 3, "running"], [A, 4, "failed"], [B, undefined, null],
  ]);
  stop();
  await clock.pass(100_000);
  assert.deepEqual([server.line.aborted, server.calls.length], [true, 2]);
});

test("a list that may not be seen is told as an error", async () => {
  const { client, server, clock } = setUp();
  server.problem(403);
  const heard = ears();
  client.watch({}, () => {}, heard);
  await clock.pass(0);
  assert.deepEqual(heard.errors.map((error) => error.status), [403]);
});
