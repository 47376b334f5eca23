/** Reconnects of a stream. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { JOB, done, recorder, logEvent, setUp, status } from "./support/server.js";

const SECOND = 1000;

test("a broken stream reconnects after 1, 2, 4, 8, 16 seconds, then gives up", async () => {
  const { client, server, clock } = setUp();
  const recorded = recorder();
  client.follow(JOB, recorded);
  await clock.advance(0);
  server.lastStream.send(logEvent(1), logEvent(2));
  for (let n = 0; n < 5; n += 1) server.unreachable();
  await clock.advance(0);
  server.lastStream.fail();
  const at = [];
  for (let second = 0; second <= 40; second += 1) {
    const before = server.calls.length;
    await clock.advance(SECOND);
    for (let n = before; n < server.calls.length; n += 1) at.push(second + 1);
  }
  assert.deepEqual(at, [1, 3, 7, 15, 31]);
  assert.deepEqual(recorded.connections, ["open", 1000, 2000, 4000, 8000, 16_000]);
  assert.deepEqual(server.cursors, [null, ...Array(5).fill("1002-2")]);
  assert.equal(recorded.errors.length, 1);
  const [error] = recorded.errors;
  assert.equal(error.code, "gave_up");
  assert.equal(error.permanent, true);
  assert.match(error.message, /gave up after 5 failed attempts.*fetch failed/);
  assert.deepEqual(recorded.ends, []);
});

test("the backoff never exceeds 30 seconds", async () => {
  const { client, server, clock } = setUp({ backoff: { attempts: 7 } });
  const recorded = recorder();
  for (let n = 0; n < 8; n += 1) server.unreachable();
  client.follow(JOB, recorded);
  await clock.advance(100 * SECOND);
  assert.deepEqual(recorded.connections, [1000, 2000, 4000, 8000, 16_000, 30_000, 30_000]);
});

for (const [what, text] of [["an event", logEvent(1)], ["a keepalive", ": keepalive: x\n\n"]]) {
  test(`${what} resets the backoff`, async () => {
    const { client, server, clock } = setUp();
    const recorded = recorder();
    for (let n = 0; n < 4; n += 1) server.unreachable();
    client.follow(JOB, recorded);
    await clock.advance(15 * SECOND);
    server.lastStream.send(text);
    await clock.advance(0);
    server.lastStream.end();
    await clock.advance(0);
    assert.deepEqual(recorded.connections, [1000, 2000, 4000, 8000, "open", 1000]);
  });
}

test("a connection without events does not reset the backoff", async () => {
  const { client, server, clock } = setUp();
  const recorded = recorder();
  client.follow(JOB, recorded);
  for (let n = 0; n < 6; n += 1) {
    await clock.advance(20 * SECOND);
    server.lastStream.send("retry: 1000\n\n");
    server.lastStream.end();
  }
  await clock.advance(60 * SECOND);
  assert.equal(server.streams.length, 6);
  assert.equal(recorded.errors[0].code, "gave_up");
});

test("a connection silent for 2.5 keepalives counts as dead", async () => {
  const { client, server, clock } = setUp();
  const recorded = recorder();
  client.follow(JOB, recorded);
  await clock.advance(0);
  const [first] = server.streams;
  for (let n = 0; n < 360; n += 1) {
    await clock.advance(10 * SECOND);
    first.send(": keepalive: 2024-01-01T12:00:00.000Z\n\n");
  }
  assert.equal(first.aborted, false); // an hour of keepalives only is fine
  await clock.advance(24.9 * SECOND);
  assert.equal(first.aborted, false);
  await clock.advance(0.2 * SECOND);
  assert.equal(first.aborted, true);
  await clock.advance(SECOND);
  assert.equal(server.streams.length, 2);
  server.lastStream.send(done(1));
  await clock.advance(0);
  assert.deepEqual([recorded.seqs, recorded.ends, recorded.errors], [[1], ["job-completed"], []]);
});

test("a request without a response counts as dead, too", async () => {
  const { client, server, clock } = setUp();
  server.neverRespond();
  client.follow(JOB, recorder());
  await clock.advance(26.1 * SECOND);
  assert.equal(server.streams.length, 1);
});

for (const code of [401, 403, 404, 422]) {
  test(`${code} is permanent: no reconnect`, async () => {
    const { client, server, clock } = setUp();
    server.problem(code, { code: "given" });
    const recorded = recorder();
    client.follow(JOB, recorded);
    await clock.advance(100 * SECOND);
    assert.equal(server.calls.length, 1);
    assert.deepEqual(recorded.errors.map((error) => [error.status, error.code]), [[code, "given"]]);
    assert.deepEqual([recorded.ends, recorded.connections], [[], []]);
  });
}

test("429 and 503 are temporary and respect Retry-After", async () => {
  const { client, server, clock } = setUp();
  server.problem(429, {}, { "retry-after": "7" });
  server.problem(503, {}, { "retry-after": "1" });
  const recorded = recorder();
  client.follow(JOB, recorded);
  await clock.advance(9 * SECOND);
  assert.deepEqual(recorded.connections, [7000, 2000, "open"]);
});

test("204 ends the stream", async () => {
  const { client, server, clock } = setUp();
  server.noContent();
  const recorded = recorder();
  client.follow(JOB, { ...recorded, after: "1003-3" });
  await clock.advance(100 * SECOND);
  assert.deepEqual(server.cursors, ["1003-3"]);
  assert.deepEqual([recorded.seqs, recorded.ends, recorded.errors], [[], [null], []]);
});

test("after the last event the connection closes without a reconnect", async () => {
  const { client, server, clock } = setUp();
  const recorded = recorder();
  client.follow(JOB, recorded);
  await clock.advance(0);
  server.lastStream.send(status(1, "created"), status(2, "queued"), done(3));
  await clock.advance(100 * SECOND);
  assert.equal(server.calls.length, 1);
  assert.equal(server.lastStream.aborted, true);
  assert.deepEqual(recorded.states, ["created", "queued", "succeeded"]);
  assert.deepEqual([recorded.seqs, recorded.ends], [[1, 2, 3], ["job-completed"]]);
});

test("an error event without an id breaks the connection, and the client reconnects", async () => {
  const { client, server, clock } = setUp();
  const recorded = recorder();
  client.follow(JOB, recorded);
  await clock.advance(0);
  // An event of the job's log.
  server.lastStream.send(logEvent(1, "error", { message: "a tool is missing" }));
  server.lastStream.send('event: error\ndata: {"message": "the disk is on fire"}\n\n');
  await clock.advance(SECOND);
  assert.deepEqual(recorded.seqs, [1]);
  assert.deepEqual(server.cursors, [null, "1001-1"]);
  server.lastStream.send(done(2));
  await clock.advance(0);
  const { seqs, ends, errors } = recorded;
  assert.deepEqual([seqs, ends, errors], [[1, 2], ["job-completed"], []]);
});

test("a response that is no event stream counts as a failed attempt", async () => {
  const { client, server, clock } = setUp();
  for (let n = 0; n < 6; n += 1) server.json({ hello: "I am a proxy" });
  const recorded = recorder();
  client.follow(JOB, recorded);
  await clock.advance(100 * SECOND);
  const { message } = recorded.errors[0];
  assert.match(message, /returned application\/json, expected text\/event-stream/);
});

test("a message with invalid JSON breaks the connection and loses no event", async () => {
  const { client, server, clock } = setUp();
  const recorded = recorder();
  client.follow(JOB, recorded);
  await clock.advance(0);
  server.lastStream.send(logEvent(1), "id: 1002-2\nevent: log\ndata: {half\n\n", logEvent(3));
  await clock.advance(SECOND);
  assert.deepEqual(server.cursors, [null, "1001-1"]);
  server.lastStream.send(logEvent(2), done(3));
  await clock.advance(0);
  assert.deepEqual(recorded.seqs, [1, 2, 3]);
});
