/** Those who follow one job: one connection, each event once and in order, progress forward. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { settled } from "./support/clock.js";
import { JOB, done, ears, progress, said, setUp, status, view } from "./support/server.js";

test("ten listeners share one connection, and hear the same", async () => {
  const { client, server, clock } = setUp();
  const all = Array.from({ length: 10 }, ears);
  for (const one of all) client.job(JOB).follow(one);
  await clock.pass(0);
  server.line.send(status(1, "created"), progress(2, 40), done(3));
  await clock.pass(0);
  assert.equal(server.calls.length, 1);
  for (const one of all) {
    assert.deepEqual([one.seqs, one.percents], [[1, 2, 3], [0, 40, 100]]);
    assert.deepEqual(one.ends, ["job-completed"]);
  }
});

test("who comes late is told what they missed, without a second connection", async () => {
  const { client, server, clock } = setUp();
  const [early, late, later] = [ears(), ears(), ears()];
  client.follow(JOB, early);
  await clock.pass(0);
  server.line.send(said(1), said(2), said(3));
  await clock.pass(0);
  client.follow(JOB, late);
  client.follow(JOB, { ...later, after: 2 });
  await clock.pass(0);
  assert.deepEqual([late.seqs, later.seqs], [[1, 2, 3], [3]]);
  server.line.send(done(4));
  await clock.pass(0);
  assert.deepEqual([early.seqs, late.seqs, later.seqs], [[1, 2, 3, 4], [1, 2, 3, 4], [3, 4]]);
  assert.equal(server.calls.length, 1);
});

test("who asks for more than is kept reads pages, then goes on with the others", async () => {
  const { client, server, clock } = setUp({ keep: 2 });
  const [early, late] = [ears(), ears()];
  client.follow(JOB, early);
  for (const seq of [1, 2, 3, 4, 5, 6]) {
    await clock.pass(0);
    server.line.send(said(seq));
  }
  await clock.pass(0);
  server.json({ events: [1, 2, 3].map((seq) => view(seq)), cursor: "1003-3", ended: false });
  server.json({ events: [4, 5, 6].map((seq) => view(seq)), cursor: "1006-6", ended: false });
  client.follow(JOB, late);
  await clock.pass(0);
  server.line.send(done(7));
  await clock.pass(0);
  assert.deepEqual(late.seqs, [1, 2, 3, 4, 5, 6, 7]);
  assert.equal(server.lines.length, 1);
  const pages = server.calls.slice(1).map(({ url }) => url.searchParams.get("lastEventId"));
  assert.deepEqual(pages, ["0", "3"]);
});

test("who begins further on than the connection waits for what they do not have", async () => {
  const { client, server, clock } = setUp();
  const [whole, rest] = [ears(), ears()];
  client.follow(JOB, whole);
  client.follow(JOB, { ...rest, after: "1002-2" });
  await clock.pass(0);
  server.line.send(said(1), said(2), done(3));
  await clock.pass(0);
  assert.deepEqual([whole.seqs, rest.seqs], [[1, 2, 3], [3]]);
});

test("a cursor that the server does not know fails nobody but its owner", async () => {
  const { client, server, clock } = setUp();
  server.keep(2);
  const [wrong, same, wild, whole, rest] = [ears(), ears(), ears(), ears(), ears()];
  client.follow(JOB, { ...wrong, after: 99 });
  client.follow(JOB, { ...wild, after: 77 });
  client.follow(JOB, whole);
  client.follow(JOB, { ...rest, after: "1002-2" });
  client.follow(JOB, { ...same, after: "1099-99" });
  await clock.pass(0);
  for (const one of [wrong, same, wild]) {
    assert.deepEqual([one.errors.map((error) => error.status), one.seqs], [[422], []]);
  }
  server.line.send(said(3), done(4));
  await clock.pass(0);
  assert.deepEqual([whole.errors, rest.errors], [[], []]);
  assert.deepEqual([whole.seqs, rest.seqs], [[1, 2, 3, 4], [3, 4]]);
  assert.deepEqual([whole.ends.length, rest.ends.length], [1, 1]);
  assert.deepEqual([whole.connections.at(-1), rest.connections.at(-1)], ["open", "open"]);
  assert.equal(server.lines.length, 1, "those that are left share a connection");
});

test("one who is slow holds nobody up, and misses nothing", async () => {
  const { client, server, clock } = setUp({ keep: 3 });
  const quick = ears();
  client.follow(JOB, quick);
  const slow = client.job(JOB).events();
  const first = slow.next();
  for (const one of [...[1, 2, 3, 4, 5].map((seq) => said(seq)), done(6)]) {
    await clock.pass(0);
    server.line.send(one);
  }
  await clock.pass(0);
  assert.deepEqual(quick.seqs, [1, 2, 3, 4, 5, 6]);
  const seqs = [(await first).value?.seq];
  server.json({ events: [2, 3, 4].map((seq) => view(seq)), cursor: "1004-4", ended: false });
  for await (const event of slow) seqs.push(event.seq);
  assert.deepEqual(seqs, [1, 2, 3, 4, 5, 6]);
});

test("a long log that comes at once is kept up with: no page is asked for", async () => {
  const { client, server, clock } = setUp();
  const heard = Array.from({ length: 10 }, ears);
  for (const one of heard) client.follow(JOB, one);
  await clock.pass(0);
  const seqs = Array.from({ length: 5000 }, (_, place) => place + 1);
  server.line.send(seqs.map((seq) => said(seq)).join("") + done(5001));
  while (heard.some((one) => one.ends.length === 0)) await settled();
  for (const one of heard) assert.deepEqual(one.seqs, [...seqs, 5001]);
  assert.equal(server.calls.length, 1);
});

test("what comes twice is dropped in silence", async () => {
  const { client, server, clock, logged } = setUp();
  const heard = ears();
  client.follow(JOB, heard);
  await clock.pass(0);
  server.line.send(said(1), said(1), said(2), said(1), said(2));
  server.line.tear();
  await clock.pass(1000);
  server.line.send(said(1), said(2), said(3), done(4)); // a server that knows no cursors
  await clock.pass(0);
  assert.deepEqual(heard.seqs, [1, 2, 3, 4]);
  assert.deepEqual(logged, []);
});

test("what comes out of order is dropped and logged, and comes again in order", async () => {
  const { client, server, clock, logged } = setUp();
  const heard = ears();
  client.follow(JOB, heard);
  await clock.pass(0);
  server.line.send(progress(1, 10), progress(3, 60), progress(2, 30), said(4));
  await clock.pass(1000);
  assert.deepEqual(heard.seqs, [1]);
  assert.equal(server.lines[0].aborted, true);
  assert.deepEqual(logged, [
    `warn: windlass: event 3 of job ${JOB} came out of order, after 1; it is dropped`,
  ]);
  assert.deepEqual(server.cursors, [null, "1001-1"]);
  server.line.send(progress(2, 30), progress(3, 60), said(4), done(5));
  await clock.pass(0);
  assert.deepEqual(heard.seqs, [1, 2, 3, 4, 5]);
  assert.deepEqual(heard.percents, [10, 30, 60, 100]);
});

test("progress never goes back, whatever is told, and that is logged", async () => {
  const { client, server, clock, logged } = setUp();
  const heard = ears();
  client.follow(JOB, heard);
  await clock.pass(0);
  server.line.send(progress(1, 10), progress(2, 40), progress(3, 20), progress(4, 40));
  server.line.send(status(5, "retrying", 30), done(6));
  await clock.pass(0);
  assert.deepEqual(heard.percents, [10, 40, 40, 100]);
  assert.deepEqual(heard.seqs, [1, 2, 3, 4, 5, 6]); // the log is told as it is
  assert.deepEqual(logged, [
    `warn: windlass: progress of 20 % (event 3 of job ${JOB}) is left out: it was at 40 %`,
    `warn: windlass: progress of 30 % (event 5 of job ${JOB}) is left out: it was at 40 %`,
  ]);
});

test("progress that says nothing of how far it is moves nothing", async () => {
  const { client, server, clock } = setUp();
  const heard = ears();
  client.follow(JOB, heard);
  await clock.pass(0);
  server.line.send(said(1, "step-progress", { progressPct: null, message: "still" }), done(2));
  await clock.pass(0);
  assert.deepEqual(heard.percents, [100]);
});

test("a resync leaps over what is not kept any more, and says where the job stands", async () => {
  const { client, server, clock, logged } = setUp();
  const heard = ears();
  client.follow(JOB, { ...heard, after: 2 });
  await clock.pass(0);
  server.line.send(said(40, "resync", { state: "running", percent: 70, seq: 42 }));
  server.line.send(progress(41, 75), said(42));
  await clock.pass(0);
  assert.deepEqual([heard.seqs, heard.percents], [[40, 41, 42], [70, 75]]);
  assert.deepEqual([heard.states, logged], [["running"], []]);
  const late = ears();
  client.follow(JOB, { ...late, after: 41 });
  await clock.pass(0);
  assert.deepEqual(late.seqs, [42]);
});

test("a listener that fails is logged, and fails alone", async () => {
  const { client, server, clock, logged } = setUp();
  const heard = ears();
  const fail = () => {
    throw new Error("mine");
  };
  client.follow(JOB, { onEvent: fail, onConnection: fail });
  client.follow(JOB, heard);
  await clock.pass(0);
  server.line.send(said(1), done(2));
  await clock.pass(0);
  assert.deepEqual(heard.seqs, [1, 2]);
  assert.deepEqual(logged, Array(3).fill("error: windlass: a listener failed"));
});

test("who stops listening hears nothing more; the last closes the connection", async () => {
  const { client, server, clock } = setUp();
  const [one, two] = [ears(), ears()];
  const stopOne = client.follow(JOB, one);
  const stopTwo = client.follow(JOB, two);
  await clock.pass(0);
  server.line.send(said(1));
  await clock.pass(0);
  stopOne();
  server.line.send(said(2));
  await clock.pass(0);
  assert.equal(server.line.aborted, false);
  stopTwo();
  stopTwo();
  await clock.pass(100_000);
  assert.equal(server.line.aborted, true);
  assert.deepEqual([one.seqs, two.seqs], [[1], [1, 2]]);
  assert.deepEqual([one.errors, two.errors, one.ends, two.ends], [[], [], [], []]);
  assert.equal(server.calls.length, 1);
  client.follow(JOB, { ...two, after: 2 });
  await clock.pass(0);
  assert.deepEqual(server.cursors, [null, "2"]);
});

test("a signal ends it as well, also while it waits to come back", async () => {
  const { client, server, clock } = setUp();
  const [heard, stop] = [ears(), new AbortController()];
  server.unreachable();
  client.follow(JOB, { ...heard, signal: stop.signal });
  await clock.pass(500);
  stop.abort();
  await clock.pass(100_000);
  assert.equal(server.calls.length, 1);
  assert.deepEqual([heard.errors, heard.ends], [[], []]);
});

test("after a refusal, who comes next asks anew", async () => {
  const { client, server, clock } = setUp();
  server.problem(404);
  const [one, two, three] = [ears(), ears(), ears()];
  client.follow(JOB, one);
  client.follow(JOB, two);
  await clock.pass(0);
  assert.deepEqual([one.errors.length, two.errors.length], [1, 1]);
  client.follow(JOB, three);
  await clock.pass(0);
  server.line.send(done(1));
  await clock.pass(0);
  assert.deepEqual(three.seqs, [1]);
});

test("an end that nobody asked to be told of is logged", async () => {
  const { client, server, clock, logged } = setUp();
  server.problem(404, { detail: "no job" });
  client.follow(JOB, {});
  await clock.pass(0);
  assert.deepEqual(logged, ["error: WindlassError: No: no job; y"]);
});

test("one who still reads what came before a refusal keeps nobody from asking anew", async () => {
  const { client, server, clock } = setUp();
  const slow = client.events(JOB);
  const first = slow.next();
  await clock.pass(0);
  server.line.send(said(1));
  assert.equal((await first).value?.seq, 1); // and there it stops for a while
  server.problem(403);
  server.line.tear();
  await clock.pass(1000);
  const heard = ears();
  client.follow(JOB, heard);
  await clock.pass(0);
  server.line.send(done(1));
  await clock.pass(0);
  assert.deepEqual([heard.seqs, heard.errors], [[1], []]);
  await assert.rejects(slow.next(), { status: 403 });
});

test("events() ends with the last event, and an early leave closes the connection", async () => {
  const { client, server } = setUp();
  const seqs = [];
  const reading = (async () => {
    for await (const event of client.job(JOB).events()) seqs.push([event.seq, event.at.getTime()]);
  })();
  await settled();
  server.line.send(said(1), done(2));
  await reading;
  assert.deepEqual(seqs, [[1, 1001], [2, 1002]]);

  const leaving = (async () => {
    for await (const _ of client.job(JOB).events()) break;
  })();
  await settled();
  server.line.send(said(1));
  await leaving;
  await settled();
  assert.equal(server.line.aborted, true);
});

test("events() can be told to stop, and says so as every abort does", async () => {
  const { client, server } = setUp();
  const stop = new AbortController();
  const next = client.job(JOB).events({ signal: stop.signal }).next();
  await settled();
  stop.abort();
  await assert.rejects(next, { name: "AbortError" });
  await settled();
  assert.equal(server.line.aborted, true);
  await assert.rejects(client.job(JOB).events({ signal: stop.signal }).next(), {
    name: "AbortError",
  });
  assert.equal(server.calls.length, 1);
});

test("events() may leave types out, but never the last", async () => {
  const { client, server } = setUp();
  const types = [];
  const reading = (async () => {
    for await (const event of client.events(JOB, { types: ["log"] })) types.push(event.type);
  })();
  await settled();
  server.line.send(said(1, "warning"), said(2), done(3));
  await reading;
  assert.deepEqual(types, ["log", "job-completed"]);
});

test("a cursor that is none is refused at once", async () => {
  const { client, server } = setUp();
  await assert.rejects(client.events(JOB, { after: "soon" }).next(), /soon is not where/);
  assert.equal(server.calls.length, 0);
});
