/** Jobs and lists on one connection that stays. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { ears, manySaid, setUp, view } from "./support/server.js";

const [A, B] = ["0189-a", "0189-b"];
const DONE = ["job-completed", { status: "succeeded", percent: 100 }];
const vector = (call) => call.url.searchParams.get("after");
const lists = (call) => call.url.searchParams.getAll("list");
const told = (type, data) => `event: ${type}\ndata: ${JSON.stringify(data)}\n\n`;
const snapshot = (list, id, seq, more = {}) =>
  told("snapshot", { list, id, seq, state: "queued", percent: 0, listed: true, ...more });
const over = (whose, status) =>
  told("over", { ...whose, problem: status ? { title: "No", detail: "so", status } : null });
const notes = () => {
  const said = [];
  const tell = ({ id, seq, listed }) => void said.push([id, seq, listed]);
  return { said, tell, onWhole: () => void said.push("whole") };
};

function listening(options) {
  const found = setUp(options);
  return { ...found, live: found.client.live() };
}

test("jobs and lists that are asked for together come on one connection", async () => {
  const { live, server, clock } = listening();
  const [one, two, list] = [ears(), ears(), notes()];
  live.follow(A, one);
  live.follow(B, { ...two, after: "1004-4" });
  live.list({ state: ["queued", "running"], limit: 50 }, list.tell, list);
  await clock.pass(50);
  const text = "state=queued&state=running&limit=50";
  assert.deepEqual(server.calls.map(vector), [`${A}:0,${B}:4`]);
  assert.deepEqual(server.calls.map(lists), [[text]]);
  assert.equal(server.calls[0].url.searchParams.get("each"), "true");
  server.line.send(manySaid(A, 1), manySaid(B, 5), snapshot(text, A, 1));
  server.line.send(told("whole", { list: text }), manySaid(A, 2, ...DONE));
  await clock.pass(1000);
  assert.deepEqual([one.seqs, one.ends, two.seqs], [[1, 2], ["job-completed"], [5]]);
  assert.deepEqual(list.said, [[A, 1, true], "whole"]);
  assert.deepEqual([server.calls.length, server.line.aborted], [1, false]);
});

test("when more is wanted, another connection goes on from where it was", async () => {
  const { live, server, clock } = listening();
  const [one, two, late] = [ears(), ears(), ears()];
  live.follow(A, one);
  await clock.pass(50);
  server.line.send(manySaid(A, 1), manySaid(A, 2));
  await clock.pass(0);
  const stop = live.follow(B, two);
  live.follow(A, late); // is there already
  await clock.pass(0);
  server.line.send(manySaid(A, 3)); // still comes on the old one
  await clock.pass(50);
  assert.deepEqual(server.lines.map((line) => line.aborted), [true, false]);
  server.line.send(manySaid(A, 3), manySaid(A, 4), manySaid(B, 1));
  await clock.pass(0);
  stop();
  server.line.send(manySaid(B, 2));
  await clock.pass(50);
  server.line.send(manySaid(A, 5));
  await clock.pass(1000);
  assert.deepEqual(server.calls.map(vector), [`${A}:0`, `${A}:3,${B}:0`, `${A}:4`]);
  assert.deepEqual([one.seqs, late.seqs, two.seqs], [[1, 2, 3, 4, 5], [1, 2, 3, 4, 5], [1]]);
});

test("who comes late reads what is not kept here, from their own cursor", async () => {
  const { live, server, clock } = listening({ keep: 2 });
  const [one, late] = [ears(), ears()];
  live.follow(A, one);
  await clock.pass(50);
  server.line.send(...[1, 2, 3, 4].map((seq) => manySaid(A, seq)));
  await clock.pass(0);
  server.json({ events: [2, 3, 4].map((seq) => view(seq, "log", {}, A)), cursor: "x" });
  live.follow(A, { ...late, after: 1 });
  await clock.pass(100);
  server.line.send(manySaid(A, 5));
  await clock.pass(0);
  assert.deepEqual([one.seqs, late.seqs], [[1, 2, 3, 4, 5], [2, 3, 4, 5]]);
  assert.equal(server.lines.length, 1);
});

test("one who stops and begins anew hears the whole log again", async () => {
  const { live, server, clock } = listening();
  const [one, again] = [ears(), ears()];
  const stop = live.follow(A, one);
  await clock.pass(50);
  server.line.send(manySaid(A, 1));
  await clock.pass(0);
  stop();
  await clock.pass(0);
  live.follow(A.toUpperCase(), again);
  server.line.send(manySaid(A, 2));
  await clock.pass(50);
  server.line.send(manySaid(A, 1), manySaid(A, 2));
  await clock.pass(0);
  assert.deepEqual(server.calls.map(vector), [`${A}:0`, `${A}:0`]);
  assert.deepEqual([one.seqs, again.seqs], [[1], [1, 2]]);
});

test("it never gives up, waits 30 seconds at most, and loses nothing", async () => {
  const { live, server, clock } = listening();
  const one = ears();
  live.follow(A, one);
  await clock.pass(50);
  server.line.send(manySaid(A, 1));
  for (let n = 0; n < 8; n += 1) server.unreachable();
  await clock.pass(0);
  server.line.tear();
  await clock.pass(1000 + 2000 + 4000 + 8000 + 16_000 + 4 * 30_000);
  server.line.send(manySaid(A, 2));
  await clock.pass(0);
  const waits = [1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000, 30_000];
  assert.deepEqual(one.connections.slice(-11), ["open", ...waits, "open"]);
  assert.deepEqual([one.seqs, one.errors], [[1, 2], []]);
});

test("what the server says of one job or list does not concern the others", async () => {
  const { live, server, clock } = listening();
  const [none, ended, good, bad] = [ears(), ears(), ears(), ears()];
  live.follow("none", none);
  live.follow(B, { ...ended, after: 3 });
  live.follow(A, good);
  live.list({ owner: "other" }, () => {}, bad);
  await clock.pass(50);
  server.line.send(over({ jobId: "none" }, 404), over({ jobId: B }));
  server.line.send(over({ list: "owner=other" }, 422), manySaid(A, 1));
  await clock.pass(1000);
  assert.deepEqual(none.errors.map(({ status }) => status), [404]);
  assert.deepEqual(bad.errors.map(({ status }) => status), [422]);
  assert.deepEqual([ended.ends, ended.errors, good.seqs], [[null], [], [1]]);
  assert.deepEqual([server.calls.length, server.line.aborted], [1, false]);
});

test("a name that no job can have is refused here", async () => {
  const { live, server, clock } = listening();
  const one = ears();
  live.follow("a:1,b", one);
  await clock.pass(1000);
  assert.deepEqual(one.errors.map(({ status }) => status), [404]);
  assert.equal(server.calls.length, 0);
});

test("of more than a hundred jobs the first are let go, and told so", async () => {
  const { live, server, clock } = listening();
  const all = Array.from({ length: 102 }, () => ears());
  all.forEach((one, n) => live.follow(`job-${n}`, one));
  await clock.pass(50);
  assert.deepEqual(all.map((one) => one.errors.length), [1, 1, ...Array(100).fill(0)]);
  assert.match(all[0].errors[0].message, /job-0 is let go: more than 100 jobs/);
  assert.equal(vector(server.calls[0]).split(",").length, 100);
});

test("of a list what changed is told once, and what left while the line was broken", async () => {
  const { live, server, clock } = listening();
  const list = notes();
  live.list({ queue: "x" }, list.tell, list);
  await clock.pass(50);
  const text = "queue=x";
  const whole = told("whole", { list: text });
  server.line.send(snapshot(text, A, 1), snapshot(text, B, 1), whole, snapshot(text, A, 2));
  await clock.pass(0);
  const late = notes();
  live.list({ queue: "x" }, late.tell, late);
  await clock.pass(50);
  server.line.tear();
  await clock.pass(1000);
  server.line.send(snapshot(text, A, 2), snapshot(text, "c", 1), whole);
  server.line.send(snapshot(text, A, 3, { listed: false }));
  await clock.pass(0);
  const after = [["c", 1, true], [B, 1, false], "whole", [A, 3, false]];
  assert.deepEqual(list.said, [[A, 1, true], [B, 1, true], "whole", [A, 2, true], ...after]);
  assert.deepEqual(late.said, [[A, 2, true], [B, 1, true], "whole", ...after]);
  assert.equal(server.lines.length, 2);
});

test("who joins a list while it is told hears each job once", async () => {
  const { live, server, clock } = listening();
  const late = notes();
  let joined = false;
  live.list({ queue: "x" }, () => {
    if (!joined) live.list({ queue: "x" }, late.tell, late);
    joined = true;
  });
  await clock.pass(50);
  const text = "queue=x";
  server.line.send(snapshot(text, A, 1), snapshot(text, B, 1), told("whole", { list: text }));
  await clock.pass(0);
  assert.deepEqual(late.said, [[A, 1, true], [B, 1, true], "whole"]);
});

test("a refusal of all stops the asking until it is told to begin again", async () => {
  const { live, server, clock } = listening({ keep: 1 });
  const [one, late, states] = [ears(), ears(), []];
  live.connection(({ open, error }) => void states.push(open ? "open" : (error?.status ?? null)));
  live.follow(A, one);
  await clock.pass(50);
  server.line.send(manySaid(A, 1), manySaid(A, 2));
  await clock.pass(0);
  server.problem(401);
  server.line.end();
  await clock.pass(1000);
  live.follow(B, ears());
  await clock.pass(1_000_000);
  assert.deepEqual([server.calls.length, one.errors], [2, []]);
  assert.deepEqual(states, [null, "open", 0, 401]);
  server.problem(401);
  live.follow(A, late); // needs a page, which is refused, too
  await clock.pass(1000);
  assert.equal(server.calls.length, 3);
  live.restart();
  server.json({ events: [1, 2].map((seq) => view(seq, "log", {}, A)), cursor: "x", ended: false });
  await clock.pass(1000);
  assert.deepEqual([late.seqs, late.errors, one.seqs], [[1, 2], [], [1, 2]]);
  server.problem(401);
  live.restart();
  await clock.pass(0);
  live.close();
  await clock.pass(1000);
  assert.equal(clock.waiting, 0);
});

test("when the machine has slept, another connection replaces one that may be dead", async () => {
  const { live, server, clock } = listening();
  let slept = 0;
  clock.wall = () => clock.now() + slept;
  const one = ears();
  live.follow(A, one);
  await clock.pass(50);
  server.line.send(manySaid(A, 1), ": keepalive: x\n\n");
  await clock.pass(15_000);
  assert.equal(server.calls.length, 1);
  slept = 3_600_000;
  await clock.pass(9_000);
  server.line.send(manySaid(A, 1), manySaid(A, 2));
  await clock.pass(0);
  assert.deepEqual(server.calls.map(vector), [`${A}:0`, `${A}:1`]);
  assert.deepEqual([server.lines[0].aborted, one.seqs], [true, [1, 2]]);
});

test("when the network is back, it does not wait", async () => {
  const events = new EventTarget();
  globalThis.addEventListener = events.addEventListener.bind(events);
  globalThis.removeEventListener = events.removeEventListener.bind(events);
  try {
    const { live, server, clock } = listening();
    for (let n = 0; n < 5; n += 1) server.unreachable();
    live.follow(A, ears());
    await clock.pass(50 + 1000 + 2000 + 4000 + 8000);
    assert.equal(server.calls.length, 5);
    events.dispatchEvent(new Event("online"));
    await clock.pass(0);
    assert.equal(server.calls.length, 6);
    live.close();
    events.dispatchEvent(new Event("online"));
    await clock.pass(100_000);
    assert.equal(server.calls.length, 6);
  } finally {
    delete globalThis.addEventListener;
    delete globalThis.removeEventListener;
  }
});

test("whoever closes it hears nothing more, and leaves no connection", async () => {
  const { live, server, clock } = listening();
  const [one, list] = [ears(), notes()];
  live.follow(A, one);
  live.list({}, list.tell, list);
  await clock.pass(50);
  assert.deepEqual(lists(server.calls[0]), [""]);
  server.line.send(manySaid(A, 1), snapshot("", A, 1));
  await clock.pass(0);
  live.close();
  await clock.pass(100_000);
  assert.deepEqual([one.seqs, list.said, one.ends, one.errors], [[1], [[A, 1, true]], [], []]);
  assert.deepEqual([server.calls.length, server.line.aborted], [1, true]);
  assert.equal(clock.waiting, 0);
});
