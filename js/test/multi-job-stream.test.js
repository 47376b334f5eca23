/** Several jobs on one connection. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { recorder, sharedEvent, setUp } from "./support/server.js";

const [A, B] = ["0189-a", "0189-b"];
const DONE = ["job-completed", { status: "succeeded", percent: 100 }];
const vector = (call) => call.url.searchParams.get("after");

function recordEvents() {
  const recorded = recorder();
  const log = [];
  return { ...recorded, log, onEvent: (event) => void log.push([event.jobId, event.seq]) };
}

test("each job continues after its own cursor through broken connections", async () => {
  const { client, server, clock } = setUp();
  const recorded = recordEvents();
  client.followMany({ [A]: 0, [B]: "1004-4" }, recorded);
  await clock.advance(0);
  server.lastStream.send(sharedEvent(A, 1), sharedEvent(B, 5));
  server.lastStream.send(sharedEvent(A, 2), sharedEvent(A, 2));
  await clock.advance(0);
  server.lastStream.fail();
  await clock.advance(1000);
  server.lastStream.send(sharedEvent(B, 5), sharedEvent(B, 6, ...DONE), sharedEvent(A, 3));
  await clock.advance(0);
  server.lastStream.end();
  await clock.advance(1000);
  server.lastStream.send(sharedEvent(A, 4, ...DONE));
  await clock.advance(100_000);
  assert.deepEqual(server.calls.map(vector), [`${A}:0,${B}:4`, `${A}:2,${B}:5`, `${A}:3,${B}:6`]);
  assert.deepEqual(recorded.log, [[A, 1], [B, 5], [A, 2], [B, 6], [A, 3], [A, 4]]);
  assert.deepEqual(recorded.ends, ["job-completed", "job-completed"]);
  assert.equal(server.lastStream.aborted, true);
});

test("an out-of-order event breaks the connection and loses no event", async () => {
  const { client, server, clock, logged } = setUp();
  const recorded = recordEvents();
  client.followMany({ [A]: 0 }, recorded);
  await clock.advance(0);
  server.lastStream.send(sharedEvent(A, 1), sharedEvent(A, 3), sharedEvent(A, 2));
  await clock.advance(1000);
  assert.match(logged[0], /event 3 of job 0189-a is out of order/);
  server.lastStream.send(sharedEvent(A, 2), sharedEvent(A, 3, ...DONE));
  await clock.advance(0);
  assert.deepEqual(recorded.log, [[A, 1], [A, 2], [A, 3]]);
});

test("progress is tracked per job", async () => {
  const { client, server, clock } = setUp();
  const recorded = recordEvents();
  client.followMany({ [A]: 0, [B]: 0 }, recorded);
  await clock.advance(0);
  const step = (job, seq, progressPct) => sharedEvent(job, seq, "step-progress", { progressPct });
  server.lastStream.send(step(A, 1, 50), step(B, 1, 10), step(A, 2, 40), step(B, 2, 20));
  await clock.advance(0);
  assert.deepEqual(recorded.percents, [50, 10, 20]);
});

test("204 means that all jobs have ended", async () => {
  const { client, server, clock } = setUp();
  server.noContent();
  const recorded = recordEvents();
  client.followMany({ [A]: 3, [B]: 4 }, recorded);
  await clock.advance(100_000);
  assert.deepEqual([recorded.ends, server.calls.length], [[null, null], 1]);
});

test("an error response and an error event are handled differently", async () => {
  const { client, server, clock } = setUp();
  const recorded = recordEvents();
  client.followMany({ [A]: 0 }, recorded);
  await clock.advance(0);
  server.lastStream.send('event: error\ndata: {"message": "the disk is on fire"}\n\n');
  server.problem(404);
  await clock.advance(100_000);
  assert.deepEqual(recorded.connections, ["open", 1000]);
  assert.deepEqual(recorded.errors.map((error) => error.status), [404]);
});

const snapshot = (id, seq, state) =>
  `event: snapshot\ndata: ${JSON.stringify({ id, seq, state, percent: 0 })}\n\n`;

test("each job's newest snapshot is reported once", async () => {
  const { client, server, clock } = setUp();
  const calls = [];
  const notify = ({ id, seq, state }) => void calls.push([id, seq, state]);
  const stop = client.watch({ queue: ["media", "x"], state: "queued" }, notify);
  await clock.advance(0);
  const { searchParams } = server.calls[0].url;
  assert.deepEqual(searchParams.getAll("queue"), ["media", "x"]);
  server.lastStream.send(snapshot(A, 2, "queued"), snapshot(B, 2, "queued"));
  server.lastStream.send(snapshot(A, 3, "running"));
  await clock.advance(0);
  server.lastStream.fail();
  await clock.advance(1000);
  server.lastStream.send(snapshot(A, 2, "queued"), snapshot(B, 2, "queued"));
  server.lastStream.send(snapshot(A, 4, "failed"));
  server.lastStream.send(`event: snapshot\ndata: {"id": "${B}", "state": null}\n\n`);
  await clock.advance(0);
  assert.deepEqual(calls, [
    [A, 2, "queued"], [B, 2, "queued"], [A, 3, "running"], [A, 4, "failed"], [B, undefined, null],
  ]);
  stop();
  await clock.advance(100_000);
  assert.deepEqual([server.lastStream.aborted, server.calls.length], [true, 2]);
});

test("a forbidden list calls onError", async () => {
  const { client, server, clock } = setUp();
  server.problem(403);
  const recorded = recorder();
  client.watch({}, () => {}, recorded);
  await clock.advance(0);
  assert.deepEqual(recorded.errors.map((error) => error.status), [403]);
});
