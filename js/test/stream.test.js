/** What becomes of a stream whose connections break. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { JOB, done, ears, said, setUp, status } from "./support/server.js";

const SECOND = 1000;

test("a broken stream is asked for again after 1, 2, 4, 8, 16 seconds, then given up", async () => {
  const { client, server, clock } = setUp();
  const heard = ears();
  client.follow(JOB, heard);
  await clock.pass(0);
  server.line.send(said(1), said(2));
  for (let n = 0; n < 5; n += 1) server.unreachable();
  await clock.pass(0);
  server.line.tear();
  const at = [];
  for (let second = 0; second <= 40; second += 1) {
    const before = server.calls.length;
    await clock.pass(SECOND);
    for (let n = before; n < server.calls.length; n += 1) at.push(second + 1);
  }
  assert.deepEqual(at, [1, 3, 7, 15, 31]);
  assert.deepEqual(heard.connections, ["open", 1000, 2000, 4000, 8000, 16_000]);
  assert.deepEqual(server.cursors, [null, ...Array(5).fill("1002-2")]);
  assert.equal(heard.errors.length, 1);
  const [error] = heard.errors;
  assert.equal(error.code, "gave_up");
  assert.equal(error.permanent, true);
  assert.match(error.message, /5 attempts in a row brought nothing.*fetch failed/);
  assert.deepEqual(heard.ends, []);
});

test("the wait never exceeds 30 seconds", async () => {
  const { client, server, clock } = setUp({ backoff: { attempts: 7 } });
  const heard = ears();
  for (let n = 0; n < 8; n += 1) server.unreachable();
  client.follow(JOB, heard);
  await clock.pass(100 * SECOND);
  assert.deepEqual(heard.connections, [1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]);
});

for (const [what, text] of [["an event", said(1)], ["a keepalive", ": keepalive: x\n\n"]]) {
  test(`${what} begins the attempts anew`, async () => {
    const { client, server, clock } = setUp();
    const heard = ears();
    for (let n = 0; n < 4; n += 1) server.unreachable();
    client.follow(JOB, heard);
    await clock.pass(15 * SECOND);
    server.line.send(text);
    await clock.pass(0);
    server.line.end();
    await clock.pass(0);
    assert.deepEqual(heard.connections, [1000, 2000, 4000, 8000, "open", 1000]);
  });
}

test("a connection that brings nothing does not begin them anew", async () => {
  const { client, server, clock } = setUp();
  const heard = ears();
  client.follow(JOB, heard);
  for (let n = 0; n < 6; n += 1) {
    await clock.pass(20 * SECOND);
    server.line.send("retry: 1000\n\n");
    server.line.end();
  }
  await clock.pass(60 * SECOND);
  assert.equal(server.lines.length, 6);
  assert.equal(heard.errors[0].code, "gave_up");
});

test("a line that is silent for two keepalives and a half is taken for dead", async () => {
  const { client, server, clock } = setUp();
  const heard = ears();
  client.follow(JOB, heard);
  await clock.pass(0);
  const [first] = server.lines;
  for (let n = 0; n < 360; n += 1) {
    await clock.pass(10 * SECOND);
    first.send(": keepalive: 2024-01-01T12:00:00.000Z\n\n");
  }
  assert.equal(first.aborted, false); // an hour of nothing but keepalives is well
  await clock.pass(24.9 * SECOND);
  assert.equal(first.aborted, false);
  await clock.pass(0.2 * SECOND);
  assert.equal(first.aborted, true);
  await clock.pass(SECOND);
  assert.equal(server.lines.length, 2);
  server.line.send(done(1));
  await clock.pass(0);
  assert.deepEqual([heard.seqs, heard.ends, heard.errors], [[1], ["job-completed"], []]);
});

test("a server that takes the request and never answers is taken for dead, too", async () => {
  const { client, server, clock } = setUp();
  server.silent();
  client.follow(JOB, ears());
  await clock.pass(26.1 * SECOND);
  assert.equal(server.lines.length, 1);
});

for (const code of [401, 403, 404, 422]) {
  test(`${code} is for good: nobody asks again`, async () => {
    const { client, server, clock } = setUp();
    server.problem(code, { code: "told" });
    const heard = ears();
    client.follow(JOB, heard);
    await clock.pass(100 * SECOND);
    assert.equal(server.calls.length, 1);
    assert.deepEqual(heard.errors.map((error) => [error.status, error.code]), [[code, "told"]]);
    assert.deepEqual([heard.ends, heard.connections], [[], []]);
  });
}

test("429 and 503 are not for good, and wait as long as the server asks", async () => {
  const { client, server, clock } = setUp();
  server.problem(429, {}, { "retry-after": "7" });
  server.problem(503, {}, { "retry-after": "1" });
  const heard = ears();
  client.follow(JOB, heard);
  await clock.pass(9 * SECOND);
  assert.deepEqual(heard.connections, [7000, 2000, "open"]);
});

test("204 after the last cursor is the end", async () => {
  const { client, server, clock } = setUp();
  server.empty();
  const heard = ears();
  client.follow(JOB, { ...heard, after: "1003-3" });
  await clock.pass(100 * SECOND);
  assert.deepEqual(server.cursors, ["1003-3"]);
  assert.deepEqual([heard.seqs, heard.ends, heard.errors], [[], [null], []]);
});

test("after the last event nobody asks again, and the connection is let go", async () => {
  const { client, server, clock } = setUp();
  const heard = ears();
  client.follow(JOB, heard);
  await clock.pass(0);
  server.line.send(status(1, "created"), status(2, "queued"), done(3));
  await clock.pass(100 * SECOND);
  assert.equal(server.calls.length, 1);
  assert.equal(server.line.aborted, true);
  assert.deepEqual(heard.states, ["created", "queued", "succeeded"]);
  assert.deepEqual([heard.seqs, heard.ends], [[1, 2, 3], ["job-completed"]]);
});

test("an error event without an id is the connection's: who gets it comes back", async () => {
  const { client, server, clock } = setUp();
  const heard = ears();
  client.follow(JOB, heard);
  await clock.pass(0);
  server.line.send(said(1, "error", { message: "a tool is missing" })); // of the job's log
  server.line.send('event: error\ndata: {"message": "the disk is on fire"}\n\n');
  await clock.pass(SECOND);
  assert.deepEqual(heard.seqs, [1]);
  assert.deepEqual(server.cursors, [null, "1001-1"]);
  server.line.send(done(2));
  await clock.pass(0);
  assert.deepEqual([heard.seqs, heard.ends, heard.errors], [[1, 2], ["job-completed"], []]);
});

test("an answer that is no stream counts as none", async () => {
  const { client, server, clock } = setUp();
  for (let n = 0; n < 6; n += 1) server.json({ hello: "I am a proxy" });
  const heard = ears();
  client.follow(JOB, heard);
  await clock.pass(100 * SECOND);
  assert.match(heard.errors[0].message, /application\/json, not with a stream/);
});

test("a message that is no JSON breaks the connection, and costs no event", async () => {
  const { client, server, clock } = setUp();
  const heard = ears();
  client.follow(JOB, heard);
  await clock.pass(0);
  server.line.send(said(1), "id: 1002-2\nevent: log\ndata: {half\n\n", said(3));
  await clock.pass(SECOND);
  assert.deepEqual(server.cursors, [null, "1001-1"]);
  server.line.send(said(2), done(3));
  await clock.pass(0);
  assert.deepEqual(heard.seqs, [1, 2, 3]);
});
