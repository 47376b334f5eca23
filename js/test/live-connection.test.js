/** Jobs and lists on one shared connection. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { recorder, sharedEvent, setUp, view } from "./support/server.js";

const [A, B] = ["0189-a", "0189-b"];
const DONE = ["job-completed", { status: "succeeded", percent: 100 }];
const cursorsOf = (call) => call.url.searchParams.get("after");
const lists = (call) => call.url.searchParams.getAll("list");
const message = (type, data) => `event: ${type}\ndata: ${JSON.stringify(data)}\n\n`;
const snapshot = (list, id, seq, more = {}) =>
  message("snapshot", { list, id, seq, state: "queued", percent: 0, listed: true, ...more });
const closed = (name, status) =>
  message("closed", { ...name, problem: status ? { title: "No", detail: "so", status } : null });
const listRecorder = () => {
  const calls = [];
  const notify = ({ id, seq, listed }) => void calls.push([id, seq, listed]);
  return { calls, notify, onLoaded: () => void calls.push("loaded") };
};

function setUpLive(options) {
  const found = setUp(options);
  return { ...found, live: found.client.live() };
}

test("jobs and lists share one connection", async () => {
  const { live, server, clock } = setUpLive();
  const [one, two, list] = [recorder(), recorder(), listRecorder()];
  live.follow(A, one);
  live.follow(B, { ...two, after: "1004-4" });
  live.list({ state: ["queued", "running"], limit: 50 }, list.notify, list);
  await clock.advance(50);
  const text = "state=queued&state=running&limit=50";
  assert.deepEqual(server.calls.map(cursorsOf), [`${A}:0,${B}:4`]);
  assert.deepEqual(server.calls.map(lists), [[text]]);
  assert.equal(server.calls[0].url.searchParams.get("reportErrors"), "true");
  server.lastStream.send(sharedEvent(A, 1), sharedEvent(B, 5), snapshot(text, A, 1));
  server.lastStream.send(message("loaded", { list: text }), sharedEvent(A, 2, ...DONE));
  await clock.advance(1000);
  assert.deepEqual([one.seqs, one.ends, two.seqs], [[1, 2], ["job-completed"], [5]]);
  assert.deepEqual(list.calls, [[A, 1, true], "loaded"]);
  assert.deepEqual([server.calls.length, server.lastStream.aborted], [1, false]);
});

test("a new job opens a connection that continues after the last events", async () => {
  const { live, server, clock } = setUpLive();
  const [one, two, late] = [recorder(), recorder(), recorder()];
  live.follow(A, one);
  await clock.advance(50);
  server.lastStream.send(sharedEvent(A, 1), sharedEvent(A, 2));
  await clock.advance(0);
  const stop = live.follow(B, two);
  live.follow(A, late); // already followed
  await clock.advance(0);
  server.lastStream.send(sharedEvent(A, 3)); // still on the old connection
  await clock.advance(50);
  assert.deepEqual(server.streams.map((line) => line.aborted), [true, false]);
  server.lastStream.send(sharedEvent(A, 3), sharedEvent(A, 4), sharedEvent(B, 1));
  await clock.advance(0);
  stop();
  server.lastStream.send(sharedEvent(B, 2));
  await clock.advance(50);
  server.lastStream.send(sharedEvent(A, 5));
  await clock.advance(1000);
  assert.deepEqual(server.calls.map(cursorsOf), [`${A}:0`, `${A}:3,${B}:0`, `${A}:4`]);
  assert.deepEqual([one.seqs, late.seqs, two.seqs], [[1, 2, 3, 4, 5], [1, 2, 3, 4, 5], [1]]);
});

test("a late listener behind the buffer reads pages from its own cursor", async () => {
  const { live, server, clock } = setUpLive({ keep: 2 });
  const [one, late] = [recorder(), recorder()];
  live.follow(A, one);
  await clock.advance(50);
  server.lastStream.send(...[1, 2, 3, 4].map((seq) => sharedEvent(A, seq)));
  await clock.advance(0);
  server.json({ events: [2, 3, 4].map((seq) => view(seq, "log", {}, A)), cursor: "x" });
  live.follow(A, { ...late, after: 1 });
  await clock.advance(100);
  server.lastStream.send(sharedEvent(A, 5));
  await clock.advance(0);
  assert.deepEqual([one.seqs, late.seqs], [[1, 2, 3, 4, 5], [2, 3, 4, 5]]);
  assert.equal(server.streams.length, 1);
});

test("a listener that subscribes again receives the whole log", async () => {
  const { live, server, clock } = setUpLive();
  const [one, again] = [recorder(), recorder()];
  const stop = live.follow(A, one);
  await clock.advance(50);
  server.lastStream.send(sharedEvent(A, 1));
  await clock.advance(0);
  stop();
  await clock.advance(0);
  live.follow(A.toUpperCase(), again);
  server.lastStream.send(sharedEvent(A, 2));
  await clock.advance(50);
  server.lastStream.send(sharedEvent(A, 1), sharedEvent(A, 2));
  await clock.advance(0);
  assert.deepEqual(server.calls.map(cursorsOf), [`${A}:0`, `${A}:0`]);
  assert.deepEqual([one.seqs, again.seqs], [[1], [1, 2]]);
});

test("reconnects never stop, wait at most 30 seconds, and lose no event", async () => {
  const { live, server, clock } = setUpLive();
  const one = recorder();
  live.follow(A, one);
  await clock.advance(50);
  server.lastStream.send(sharedEvent(A, 1));
  for (let n = 0; n < 8; n += 1) server.unreachable();
  await clock.advance(0);
  server.lastStream.fail();
  await clock.advance(1000 + 2000 + 4000 + 8000 + 16_000 + 4 * 30_000);
  server.lastStream.send(sharedEvent(A, 2));
  await clock.advance(0);
  const waits = [1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000, 30_000];
  assert.deepEqual(one.connections.slice(-11), ["open", ...waits, "open"]);
  assert.deepEqual([one.seqs, one.errors], [[1, 2], []]);
});

test("an error of one job or list does not affect the others", async () => {
  const { live, server, clock } = setUpLive();
  const [none, ended, good, bad] = [recorder(), recorder(), recorder(), recorder()];
  live.follow("none", none);
  live.follow(B, { ...ended, after: 3 });
  live.follow(A, good);
  live.list({ owner: "other" }, () => {}, bad);
  await clock.advance(50);
  server.lastStream.send(closed({ jobId: "none" }, 404), closed({ jobId: B }));
  server.lastStream.send(closed({ list: "owner=other" }, 422), sharedEvent(A, 1));
  await clock.advance(1000);
  assert.deepEqual(none.errors.map(({ status }) => status), [404]);
  assert.deepEqual(bad.errors.map(({ status }) => status), [422]);
  assert.deepEqual([ended.ends, ended.errors, good.seqs], [[null], [], [1]]);
  assert.deepEqual([server.calls.length, server.lastStream.aborted], [1, false]);
});

test("an invalid job id fails without a request", async () => {
  const { live, server, clock } = setUpLive();
  const one = recorder();
  live.follow("a:1,b", one);
  await clock.advance(1000);
  assert.deepEqual(one.errors.map(({ status }) => status), [404]);
  assert.equal(server.calls.length, 0);
});

test("beyond a hundred jobs, the oldest subscriptions end with an error", async () => {
  const { live, server, clock } = setUpLive();
  const all = Array.from({ length: 102 }, () => recorder());
  all.forEach((one, n) => live.follow(`job-${n}`, one));
  await clock.advance(50);
  assert.deepEqual(all.map((one) => one.errors.length), [1, 1, ...Array(100).fill(0)]);
  assert.match(all[0].errors[0].message, /job-0 was dropped: at most 100 jobs/);
  assert.equal(cursorsOf(server.calls[0]).split(",").length, 100);
});

test("list changes are reported once, also removals during a disconnect", async () => {
  const { live, server, clock } = setUpLive();
  const list = listRecorder();
  live.list({ queue: "x" }, list.notify, list);
  await clock.advance(50);
  const text = "queue=x";
  const loaded = message("loaded", { list: text });
  server.lastStream.send(snapshot(text, A, 1), snapshot(text, B, 1), loaded, snapshot(text, A, 2));
  await clock.advance(0);
  const late = listRecorder();
  live.list({ queue: "x" }, late.notify, late);
  await clock.advance(50);
  server.lastStream.fail();
  await clock.advance(1000);
  server.lastStream.send(snapshot(text, A, 2), snapshot(text, "c", 1), loaded);
  server.lastStream.send(snapshot(text, A, 3, { listed: false }));
  await clock.advance(0);
  const after = [["c", 1, true], [B, 1, false], "loaded", [A, 3, false]];
  assert.deepEqual(list.calls, [[A, 1, true], [B, 1, true], "loaded", [A, 2, true], ...after]);
  assert.deepEqual(late.calls, [[A, 2, true], [B, 1, true], "loaded", ...after]);
  assert.equal(server.streams.length, 2);
});

test("a reader that joins during loading receives each job once", async () => {
  const { live, server, clock } = setUpLive();
  const late = listRecorder();
  let joined = false;
  live.list({ queue: "x" }, () => {
    if (!joined) live.list({ queue: "x" }, late.notify, late);
    joined = true;
  });
  await clock.advance(50);
  const text = "queue=x";
  const loaded = message("loaded", { list: text });
  server.lastStream.send(snapshot(text, A, 1), snapshot(text, B, 1), loaded);
  await clock.advance(0);
  assert.deepEqual(late.calls, [[A, 1, true], [B, 1, true], "loaded"]);
});

test("after 401 no request is sent until restart()", async () => {
  const { live, server, clock } = setUpLive({ keep: 1 });
  const [one, late, states] = [recorder(), recorder(), []];
  live.connection(({ open, error }) => void states.push(open ? "open" : (error?.status ?? null)));
  live.follow(A, one);
  await clock.advance(50);
  server.lastStream.send(sharedEvent(A, 1), sharedEvent(A, 2));
  await clock.advance(0);
  server.problem(401);
  server.lastStream.end();
  await clock.advance(1000);
  live.follow(B, recorder());
  await clock.advance(1_000_000);
  assert.deepEqual([server.calls.length, one.errors], [2, []]);
  assert.deepEqual(states, [null, "open", 0, 401]);
  server.problem(401);
  live.follow(A, late); // needs a page, which gets 401, too
  await clock.advance(1000);
  assert.equal(server.calls.length, 3);
  live.restart();
  server.json({ events: [1, 2].map((seq) => view(seq, "log", {}, A)), cursor: "x", ended: false });
  await clock.advance(1000);
  assert.deepEqual([late.seqs, late.errors, one.seqs], [[1, 2], [], [1, 2]]);
  server.problem(401);
  live.restart();
  await clock.advance(0);
  live.close();
  await clock.advance(1000);
  assert.equal(clock.pending, 0);
});

test("after the machine slept, a new connection replaces the old one", async () => {
  const { live, server, clock } = setUpLive();
  let slept = 0;
  clock.wall = () => clock.now() + slept;
  const one = recorder();
  live.follow(A, one);
  await clock.advance(50);
  server.lastStream.send(sharedEvent(A, 1), ": keepalive: x\n\n");
  await clock.advance(15_000);
  assert.equal(server.calls.length, 1);
  slept = 3_600_000;
  await clock.advance(9_000);
  server.lastStream.send(sharedEvent(A, 1), sharedEvent(A, 2));
  await clock.advance(0);
  assert.deepEqual(server.calls.map(cursorsOf), [`${A}:0`, `${A}:1`]);
  assert.deepEqual([server.streams[0].aborted, one.seqs], [true, [1, 2]]);
});

test("when the network is back, it reconnects at once", async () => {
  const events = new EventTarget();
  globalThis.addEventListener = events.addEventListener.bind(events);
  globalThis.removeEventListener = events.removeEventListener.bind(events);
  try {
    const { live, server, clock } = setUpLive();
    for (let n = 0; n < 5; n += 1) server.unreachable();
    live.follow(A, recorder());
    await clock.advance(50 + 1000 + 2000 + 4000 + 8000);
    assert.equal(server.calls.length, 5);
    events.dispatchEvent(new Event("online"));
    await clock.advance(0);
    assert.equal(server.calls.length, 6);
    live.close();
    events.dispatchEvent(new Event("online"));
    await clock.advance(100_000);
    assert.equal(server.calls.length, 6);
  } finally {
    delete globalThis.addEventListener;
    delete globalThis.removeEventListener;
  }
});

test("close() ends callbacks and the connection", async () => {
  const { live, server, clock } = setUpLive();
  const [one, list] = [recorder(), listRecorder()];
  live.follow(A, one);
  live.list({}, list.notify, list);
  await clock.advance(50);
  assert.deepEqual(lists(server.calls[0]), [""]);
  server.lastStream.send(sharedEvent(A, 1), snapshot("", A, 1));
  await clock.advance(0);
  live.close();
  await clock.advance(100_000);
  assert.deepEqual([one.seqs, list.calls, one.ends, one.errors], [[1], [[A, 1, true]], [], []]);
  assert.deepEqual([server.calls.length, server.lastStream.aborted], [1, true]);
  assert.equal(clock.pending, 0);
});
