/** Followers of one job: one connection, each event once and in order, progress never decreases. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { settled } from "./support/clock.js";
import { JOB, done, recorder, progress, logEvent, setUp, status, view } from "./support/server.js";

test("ten listeners share one connection and receive the same events", async () => {
  const { client, server, clock } = setUp();
  const all = Array.from({ length: 10 }, recorder);
  for (const one of all) client.job(JOB).follow(one);
  await clock.advance(0);
  server.lastStream.send(status(1, "created"), progress(2, 40), done(3));
  await clock.advance(0);
  assert.equal(server.calls.length, 1);
  for (const one of all) {
    assert.deepEqual([one.seqs, one.percents], [[1, 2, 3], [0, 40, 100]]);
    assert.deepEqual(one.ends, ["job-completed"]);
  }
});

test("a late listener receives earlier events without a second connection", async () => {
  const { client, server, clock } = setUp();
  const [early, late, later] = [recorder(), recorder(), recorder()];
  client.follow(JOB, early);
  await clock.advance(0);
  server.lastStream.send(logEvent(1), logEvent(2), logEvent(3));
  await clock.advance(0);
  client.follow(JOB, late);
  client.follow(JOB, { ...later, after: 2 });
  await clock.advance(0);
  assert.deepEqual([late.seqs, later.seqs], [[1, 2, 3], [3]]);
  server.lastStream.send(done(4));
  await clock.advance(0);
  assert.deepEqual([early.seqs, late.seqs, later.seqs], [[1, 2, 3, 4], [1, 2, 3, 4], [3, 4]]);
  assert.equal(server.calls.length, 1);
});

test("a listener behind the buffer reads pages, then continues with the others", async () => {
  const { client, server, clock } = setUp({ keep: 2 });
  const [early, late] = [recorder(), recorder()];
  client.follow(JOB, early);
  for (const seq of [1, 2, 3, 4, 5, 6]) {
    await clock.advance(0);
    server.lastStream.send(logEvent(seq));
  }
  await clock.advance(0);
  server.json({ events: [1, 2, 3].map((seq) => view(seq)), cursor: "1003-3", ended: false });
  server.json({ events: [4, 5, 6].map((seq) => view(seq)), cursor: "1006-6", ended: false });
  client.follow(JOB, late);
  await clock.advance(0);
  server.lastStream.send(done(7));
  await clock.advance(0);
  assert.deepEqual(late.seqs, [1, 2, 3, 4, 5, 6, 7]);
  assert.equal(server.streams.length, 1);
  const pages = server.calls.slice(1).map(({ url }) => url.searchParams.get("lastEventId"));
  assert.deepEqual(pages, ["0", "3"]);
});

test("a listener with a later cursor receives only events after it", async () => {
  const { client, server, clock } = setUp();
  const [whole, rest] = [recorder(), recorder()];
  client.follow(JOB, whole);
  client.follow(JOB, { ...rest, after: "1002-2" });
  await clock.advance(0);
  server.lastStream.send(logEvent(1), logEvent(2), done(3));
  await clock.advance(0);
  assert.deepEqual([whole.seqs, rest.seqs], [[1, 2, 3], [3]]);
});

test("a cursor unknown to the server fails only its listener", async () => {
  const { client, server, clock } = setUp();
  server.serveRunningJob(2);
  const [wrong, same, wild, whole, rest] = Array.from({ length: 5 }, recorder);
  client.follow(JOB, { ...wrong, after: 99 });
  client.follow(JOB, { ...wild, after: 77 });
  client.follow(JOB, whole);
  client.follow(JOB, { ...rest, after: "1002-2" });
  client.follow(JOB, { ...same, after: "1099-99" });
  await clock.advance(0);
  for (const one of [wrong, same, wild]) {
    assert.deepEqual([one.errors.map((error) => error.status), one.seqs], [[422], []]);
  }
  server.lastStream.send(logEvent(3), done(4));
  await clock.advance(0);
  assert.deepEqual([whole.errors, rest.errors], [[], []]);
  assert.deepEqual([whole.seqs, rest.seqs], [[1, 2, 3, 4], [3, 4]]);
  assert.deepEqual([whole.ends.length, rest.ends.length], [1, 1]);
  assert.deepEqual([whole.connections.at(-1), rest.connections.at(-1)], ["open", "open"]);
  assert.equal(server.streams.length, 1, "the others share a connection");
});

test("a slow reader delays no other and misses no event", async () => {
  const { client, server, clock } = setUp({ keep: 3 });
  const quick = recorder();
  client.follow(JOB, quick);
  const slow = client.job(JOB).events();
  const first = slow.next();
  for (const one of [...[1, 2, 3, 4, 5].map((seq) => logEvent(seq)), done(6)]) {
    await clock.advance(0);
    server.lastStream.send(one);
  }
  await clock.advance(0);
  assert.deepEqual(quick.seqs, [1, 2, 3, 4, 5, 6]);
  const seqs = [(await first).value?.seq];
  server.json({ events: [2, 3, 4].map((seq) => view(seq)), cursor: "1004-4", ended: false });
  for await (const event of slow) seqs.push(event.seq);
  assert.deepEqual(seqs, [1, 2, 3, 4, 5, 6]);
});

test("a long log is read from the stream without pages", async () => {
  const { client, server, clock } = setUp();
  const recorded = Array.from({ length: 10 }, recorder);
  for (const one of recorded) client.follow(JOB, one);
  await clock.advance(0);
  const seqs = Array.from({ length: 5000 }, (_, place) => place + 1);
  server.lastStream.send(seqs.map((seq) => logEvent(seq)).join("") + done(5001));
  while (recorded.some((one) => one.ends.length === 0)) await settled();
  for (const one of recorded) assert.deepEqual(one.seqs, [...seqs, 5001]);
  assert.equal(server.calls.length, 1);
});

test("duplicate events are dropped without a warning", async () => {
  const { client, server, clock, logged } = setUp();
  const recorded = recorder();
  client.follow(JOB, recorded);
  await clock.advance(0);
  server.lastStream.send(logEvent(1), logEvent(1), logEvent(2), logEvent(1), logEvent(2));
  server.lastStream.fail();
  await clock.advance(1000);
  // A server that ignores cursors.
  server.lastStream.send(logEvent(1), logEvent(2), logEvent(3), done(4));
  await clock.advance(0);
  assert.deepEqual(recorded.seqs, [1, 2, 3, 4]);
  assert.deepEqual(logged, []);
});

test("out-of-order events are dropped, logged and delivered again in order", async () => {
  const { client, server, clock, logged } = setUp();
  const recorded = recorder();
  client.follow(JOB, recorded);
  await clock.advance(0);
  server.lastStream.send(progress(1, 10), progress(3, 60), progress(2, 30), logEvent(4));
  await clock.advance(1000);
  assert.deepEqual(recorded.seqs, [1]);
  assert.equal(server.streams[0].aborted, true);
  assert.deepEqual(logged, [
    `warn: windlass: dropped: event 3 of job ${JOB} is out of order, after 1`,
  ]);
  assert.deepEqual(server.cursors, [null, "1001-1"]);
  server.lastStream.send(progress(2, 30), progress(3, 60), logEvent(4), done(5));
  await clock.advance(0);
  assert.deepEqual(recorded.seqs, [1, 2, 3, 4, 5]);
  assert.deepEqual(recorded.percents, [10, 30, 60, 100]);
});

test("lower progress is ignored and logged", async () => {
  const { client, server, clock, logged } = setUp();
  const recorded = recorder();
  client.follow(JOB, recorded);
  await clock.advance(0);
  server.lastStream.send(progress(1, 10), progress(2, 40), progress(3, 20), progress(4, 40));
  server.lastStream.send(status(5, "retrying", 30), done(6));
  await clock.advance(0);
  assert.deepEqual(recorded.percents, [10, 40, 40, 100]);
  assert.deepEqual(recorded.seqs, [1, 2, 3, 4, 5, 6]); // events are not filtered
  assert.deepEqual(logged, [
    `warn: windlass: ignored progress of 20 % (event 3 of job ${JOB}): it was at 40 %`,
    `warn: windlass: ignored progress of 30 % (event 5 of job ${JOB}): it was at 40 %`,
  ]);
});

test("progress events without a percentage change nothing", async () => {
  const { client, server, clock } = setUp();
  const recorded = recorder();
  client.follow(JOB, recorded);
  await clock.advance(0);
  const still = { progressPct: null, message: "still" };
  server.lastStream.send(logEvent(1, "step-progress", still), done(2));
  await clock.advance(0);
  assert.deepEqual(recorded.percents, [100]);
});

test("resync skips pruned events and carries the job's state", async () => {
  const { client, server, clock, logged } = setUp();
  const recorded = recorder();
  client.follow(JOB, { ...recorded, after: 2 });
  await clock.advance(0);
  server.lastStream.send(logEvent(40, "resync", { state: "running", percent: 70, seq: 42 }));
  server.lastStream.send(progress(41, 75), logEvent(42));
  await clock.advance(0);
  assert.deepEqual([recorded.seqs, recorded.percents], [[40, 41, 42], [70, 75]]);
  assert.deepEqual([recorded.states, logged], [["running"], []]);
  const late = recorder();
  client.follow(JOB, { ...late, after: 41 });
  await clock.advance(0);
  assert.deepEqual(late.seqs, [42]);
});

test("a failing callback is logged and affects no other listener", async () => {
  const { client, server, clock, logged } = setUp();
  const recorded = recorder();
  const fail = () => {
    throw new Error("mine");
  };
  client.follow(JOB, { onEvent: fail, onConnection: fail });
  client.follow(JOB, recorded);
  await clock.advance(0);
  server.lastStream.send(logEvent(1), done(2));
  await clock.advance(0);
  assert.deepEqual(recorded.seqs, [1, 2]);
  assert.deepEqual(logged, Array(3).fill("error: windlass: a callback failed"));
});

test("unsubscribing ends callbacks, and the last listener closes the connection", async () => {
  const { client, server, clock } = setUp();
  const [one, two] = [recorder(), recorder()];
  const stopOne = client.follow(JOB, one);
  const stopTwo = client.follow(JOB, two);
  await clock.advance(0);
  server.lastStream.send(logEvent(1));
  await clock.advance(0);
  stopOne();
  server.lastStream.send(logEvent(2));
  await clock.advance(0);
  assert.equal(server.lastStream.aborted, false);
  stopTwo();
  stopTwo();
  await clock.advance(100_000);
  assert.equal(server.lastStream.aborted, true);
  assert.deepEqual([one.seqs, two.seqs], [[1], [1, 2]]);
  assert.deepEqual([one.errors, two.errors, one.ends, two.ends], [[], [], [], []]);
  assert.equal(server.calls.length, 1);
  client.follow(JOB, { ...two, after: 2 });
  await clock.advance(0);
  assert.deepEqual(server.cursors, [null, "2"]);
});

test("a signal ends a subscription, also during backoff", async () => {
  const { client, server, clock } = setUp();
  const [recorded, stop] = [recorder(), new AbortController()];
  server.unreachable();
  client.follow(JOB, { ...recorded, signal: stop.signal });
  await clock.advance(500);
  stop.abort();
  await clock.advance(100_000);
  assert.equal(server.calls.length, 1);
  assert.deepEqual([recorded.errors, recorded.ends], [[], []]);
});

test("after an error response, the next listener reconnects", async () => {
  const { client, server, clock } = setUp();
  server.problem(404);
  const [one, two, three] = [recorder(), recorder(), recorder()];
  client.follow(JOB, one);
  client.follow(JOB, two);
  await clock.advance(0);
  assert.deepEqual([one.errors.length, two.errors.length], [1, 1]);
  client.follow(JOB, three);
  await clock.advance(0);
  server.lastStream.send(done(1));
  await clock.advance(0);
  assert.deepEqual(three.seqs, [1]);
});

test("an error without an onError callback is logged", async () => {
  const { client, server, clock, logged } = setUp();
  server.problem(404, { detail: "no job" });
  client.follow(JOB, {});
  await clock.advance(0);
  assert.deepEqual(logged, ["error: WindlassError: No: no job; y"]);
});

test("a reader of old events does not keep a new listener from reconnecting", async () => {
  const { client, server, clock } = setUp();
  const slow = client.events(JOB);
  const first = slow.next();
  await clock.advance(0);
  server.lastStream.send(logEvent(1));
  assert.equal((await first).value?.seq, 1); // and pauses here
  server.problem(403);
  server.lastStream.fail();
  await clock.advance(1000);
  const recorded = recorder();
  client.follow(JOB, recorded);
  await clock.advance(0);
  server.lastStream.send(done(1));
  await clock.advance(0);
  assert.deepEqual([recorded.seqs, recorded.errors], [[1], []]);
  await assert.rejects(slow.next(), { status: 403 });
});

test("events() ends with the last event, and an early break closes the connection", async () => {
  const { client, server } = setUp();
  const seqs = [];
  const reading = (async () => {
    for await (const event of client.job(JOB).events()) seqs.push([event.seq, event.at.getTime()]);
  })();
  await settled();
  server.lastStream.send(logEvent(1), done(2));
  await reading;
  assert.deepEqual(seqs, [[1, 1001], [2, 1002]]);

  const leaving = (async () => {
    for await (const _ of client.job(JOB).events()) break;
  })();
  await settled();
  server.lastStream.send(logEvent(1));
  await leaving;
  await settled();
  assert.equal(server.lastStream.aborted, true);
});

test("events() rejects with AbortError when its signal aborts", async () => {
  const { client, server } = setUp();
  const stop = new AbortController();
  const next = client.job(JOB).events({ signal: stop.signal }).next();
  await settled();
  stop.abort();
  await assert.rejects(next, { name: "AbortError" });
  await settled();
  assert.equal(server.lastStream.aborted, true);
  await assert.rejects(client.job(JOB).events({ signal: stop.signal }).next(), {
    name: "AbortError",
  });
  assert.equal(server.calls.length, 1);
});

test("events() filters by type, but always yields the last event", async () => {
  const { client, server } = setUp();
  const types = [];
  const reading = (async () => {
    for await (const event of client.events(JOB, { types: ["log"] })) types.push(event.type);
  })();
  await settled();
  server.lastStream.send(logEvent(1, "warning"), logEvent(2), done(3));
  await reading;
  assert.deepEqual(types, ["log", "job-completed"]);
});

test("an invalid cursor throws before any request", async () => {
  const { client, server } = setUp();
  await assert.rejects(client.events(JOB, { after: "soon" }).next(), /invalid event cursor soon/);
  assert.equal(server.calls.length, 0);
});
