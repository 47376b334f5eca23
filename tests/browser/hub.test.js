/** Tabs and their hub, in Node: the server, the time and the ports are the test's own. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { JOB, Server, ears, manySaid } from "../client/test/support/server.js";
import { VirtualClock } from "../client/test/support/clock.js";
import { Hub } from "../live/hub.js";
import { Link } from "../live/link.js";

const QUIET = { debug() {}, warn() {}, error() {} };
const told = (type, data) => `event: ${type}\ndata: ${JSON.stringify(data)}\n\n`;

/** What is said arrives as a copy, later; nothing does when the wire is cut. */
function wire() {
  const state = { cut: false };
  const end = (/** @type {() => any} */ other) => ({
    onmessage: null,
    close() {},
    postMessage: (said) => {
      const data = structuredClone(said);
      queueMicrotask(() => state.cut || other().onmessage?.({ data }));
    },
  });
  const [tab, hub] = [end(() => hub), end(() => tab)];
  return { tab, hub, state };
}

function setUp() {
  const [server, clock] = [new Server(), new VirtualClock()];
  const make = () =>
    new Hub({ url: "http://test", fetch: server.fetch, log: QUIET, timers: clock });
  const around = { server, clock, hub: make(), make, wires: [] };
  around.tab = (visible = true, timers = clock) => {
    const open = async () => {
      const { tab, hub, state } = wire();
      around.wires.push(state);
      around.hub.join(hub);
      return tab;
    };
    return new Link({ open, alive: Promise.resolve(null), visible, timers, log: QUIET });
  };
  return around;
}

function polled(link, path = "/api/queues", seconds = 10) {
  const answers = [];
  link.poll(path, seconds, (answer, error) => void answers.push(error?.status ?? answer));
  return answers;
}

const paths = (server) => server.calls.map(({ url }) => url.pathname);

test("what tabs poll is asked once in the shortest of their periods", async () => {
  const { server, clock, tab } = setUp();
  for (const n of [1, 2, 3]) server.json(n);
  const one = polled(tab(), "/api/queues", 60);
  await clock.pass(5000);
  const two = polled(tab(), "/api/queues", 10);
  await clock.pass(0);
  assert.deepEqual([one, two], [[1], [1]]); // the last known answer, at once
  await clock.pass(5000);
  assert.deepEqual([one, two], [[1, 2], [1, 2]]);
  await clock.pass(10_000);
  assert.deepEqual([one, two, server.calls.length], [[1, 2, 3], [1, 2, 3], 3]);
});

test("nothing is polled while nobody looks", async () => {
  const { server, clock, tab } = setUp();
  for (const n of [1, 2, 3]) server.json(n);
  const [one, two] = [tab(), tab(false)];
  const answers = polled(one);
  polled(two);
  await clock.pass(0);
  one.show(false);
  await clock.pass(100_000);
  assert.deepEqual(answers, [1]);
  two.show(true);
  await clock.pass(0);
  assert.deepEqual(answers, [1, 2]); // it was time long ago
  await clock.pass(9000);
  one.show(true);
  await clock.pass(0);
  assert.deepEqual(answers, [1, 2]); // it is not yet
});

test("a refresh asks now, and again when an answer was on its way", async () => {
  const { server, clock, tab } = setUp();
  const link = tab();
  let answer = (_) => {};
  server.answers.push(() => new Promise((resolve) => (answer = resolve)));
  server.json("after");
  const answers = polled(link, "/api/jobs?state=failed", 3600);
  await clock.pass(0);
  link.refresh("/api/jobs");
  await clock.pass(0);
  assert.equal(server.calls.length, 1);
  answer(new Response('"before"', { headers: { "content-type": "application/json" } }));
  await clock.pass(0);
  assert.deepEqual([answers, server.calls.length], [["after"], 2]);
});

test("polls tell how the server is reached where nothing is followed", async () => {
  const { server, clock, tab } = setUp();
  const [link, states] = [tab(), []];
  link.connection(({ open, error }) => void states.push(open ? "open" : (error?.code ?? null)));
  server.json(1);
  server.unreachable();
  server.json(3);
  const answers = polled(link);
  await clock.pass(20_000);
  assert.deepEqual(answers, [1, 0, 3]);
  assert.deepEqual(states, [null, null, "open", "connection", "open"]);
});

test("what is refused for good is not asked again, before a refresh", async () => {
  const { server, clock, tab } = setUp();
  const link = tab();
  server.problem(403);
  const answers = polled(link);
  await clock.pass(100_000);
  assert.deepEqual([answers, server.calls.length], [[403], 1]);
  server.json(2);
  link.refresh("/api/queues");
  await clock.pass(0);
  assert.deepEqual(answers, [403, 2]);
});

test("a server that asks to be left alone is, for as long as it says", async () => {
  const { server, clock, tab } = setUp();
  server.answers.push(() => new Response("{}", { status: 429, headers: { "retry-after": "30" } }));
  server.json(2);
  const answers = polled(tab(), "/api/queues", 2);
  await clock.pass(29_000);
  assert.deepEqual([answers, server.calls.length], [[429], 1]);
  await clock.pass(2000);
  assert.deepEqual([answers, server.calls.length], [[429, 2], 2]);
});

test("while the stream is broken nothing is polled, and all of it when it is back", async () => {
  const { server, clock, tab } = setUp();
  const link = tab();
  const stop = link.follow(JOB, {});
  await clock.pass(50);
  server.json(1);
  const answers = polled(link, "/api/queues", 2);
  await clock.pass(0);
  for (let n = 0; n < 3; n += 1) server.unreachable();
  server.line.tear();
  await clock.pass(1000 + 2000);
  server.answers = [];
  assert.deepEqual(answers, [1]);
  const calls = server.calls.length;
  server.answers.push(({ init }) => server.stream(init.signal));
  server.json(2);
  server.json(3);
  await clock.pass(4000);
  assert.deepEqual([answers, server.calls.length], [[1, 2], calls + 2]);
  stop();
  await clock.pass(2000);
  assert.deepEqual(answers, [1, 2, 3]);
});

test("after 401 nothing is asked, until a tab says so, or another comes", async () => {
  const { server, clock, tab } = setUp();
  const [link, states, heard] = [tab(), [], ears()];
  link.connection(({ open, error }) => void states.push(open ? "open" : (error?.status ?? null)));
  for (let n = 0; n < 4; n += 1) server.problem(401);
  link.follow(JOB, heard);
  const answers = polled(link);
  await clock.pass(1_000_000);
  assert.deepEqual(paths(server).sort(), ["/api/events", "/api/queues"]);
  assert.deepEqual([states.at(-1), answers], [401, [401]]);
  link.restart(); // too early
  await clock.pass(1_000_000);
  assert.deepEqual([server.calls.length, states.at(-1), answers], [4, 401, [401, 401]]);
  server.answers.push(({ init }) => server.stream(init.signal));
  server.json("in");
  server.json("in"); // asked again because the stream is back
  tab().connection(() => {}); // a page that was let in
  await clock.pass(100);
  server.line.send(manySaid(JOB, 1));
  await clock.pass(0);
  assert.deepEqual([states.at(-1), heard.seqs, heard.errors], ["open", [1], []]);
  assert.deepEqual([...new Set(answers)], [401, "in"]);
});

test("a tab of which nothing is heard is dropped; when it wakes, it goes on", async () => {
  const { server, clock, tab } = setUp();
  const frozen = new VirtualClock();
  const heard = ears();
  tab(true, frozen).follow(JOB, heard);
  await clock.pass(100);
  server.line.send(manySaid(JOB, 1));
  for (let n = 0; n < 30 && !server.line.aborted; n += 1) {
    server.line.send(": keepalive: x\n\n");
    await clock.pass(10_000);
  }
  assert.deepEqual([server.line.aborted, server.calls.length], [true, 1]);
  await frozen.pass(15_000);
  await clock.pass(100);
  assert.equal(server.calls.at(-1).url.searchParams.get("after"), `${JOB}:1`);
  server.line.send(manySaid(JOB, 2));
  await clock.pass(0);
  assert.deepEqual(heard.seqs, [1, 2]);
});

test("a tab that comes back goes on from where it was", async () => {
  const { server, clock, tab } = setUp();
  const [link, heard, said] = [tab(), ears(), []];
  link.follow(JOB, heard);
  link.list({}, ({ id, listed }) => void said.push([id, listed]));
  await clock.pass(100);
  const snapshot = (id) => told("snapshot", { list: "", id, seq: 1, state: null, listed: true });
  const whole = told("whole", { list: "" });
  server.line.send(manySaid(JOB, 1), manySaid(JOB, 2), snapshot("a"), snapshot("b"), whole);
  await clock.pass(0);
  link.leave(); // the browser keeps the page
  await clock.pass(1000);
  assert.equal(server.line.aborted, true);
  link.greet();
  await clock.pass(1000);
  assert.equal(server.calls.at(-1).url.searchParams.get("after"), `${JOB}:2`);
  server.line.send(manySaid(JOB, 3), snapshot("a"), snapshot("c"), whole);
  await clock.pass(0);
  assert.deepEqual(heard.seqs, [1, 2, 3]);
  assert.deepEqual(said, [["a", true], ["b", true], ["c", true], ["b", false]]);
});

test("what was on its way when a tab says again what it wants is not heard twice", async () => {
  const { server, clock, tab } = setUp();
  const [link, seqs] = [tab(), []];
  link.follow(JOB, {
    onEvent: ({ seq }) => {
      seqs.push(seq);
      if (seq === 2) link.greet();
    },
  });
  await clock.pass(100);
  server.line.send(...[1, 2, 3, 4].map((seq) => manySaid(JOB, seq)));
  await clock.pass(1000);
  assert.deepEqual(seqs, [1, 2, 3, 4]);
});

test("a hub that is gone is replaced, and nobody misses anything", async () => {
  const around = setUp();
  const { server, clock, tab, wires, make } = around;
  const [link, heard] = [tab(), ears()];
  link.follow(JOB, heard);
  await clock.pass(100);
  server.line.send(manySaid(JOB, 1));
  await clock.pass(0);
  wires[0].cut = true; // and with it the worker
  around.hub = make();
  await clock.pass(65_000);
  assert.equal(wires.length, 2);
  assert.equal(server.calls.at(-1).url.searchParams.get("after"), `${JOB}:1`);
  server.line.send(manySaid(JOB, 1), manySaid(JOB, 2));
  await clock.pass(0);
  assert.deepEqual(heard.seqs, [1, 2]);
});

test("what one person was told is not told to the next", async () => {
  const { server, clock, tab } = setUp();
  const [hers, his] = [tab(), tab()];
  let answer = (_) => {};
  const json = (value) =>
    new Response(JSON.stringify(value), { headers: { "content-type": "application/json" } });
  const serve = (asked) => {
    server.always = (call) =>
      call.headers.Accept === "text/event-stream" ? server.stream(call.init.signal) : asked(call);
  };
  serve(({ url }) =>
    url.pathname === "/api/keys" ? json("hers") : new Promise((resolve) => (answer = resolve)),
  );
  hers.restart("Alice");
  polled(hers, "/api/keys", 3600);
  polled(hers, "/api/audit", 3600);
  const heard = ears();
  hers.follow(JOB, heard);
  await clock.pass(100);
  server.line.send(manySaid(JOB, 1));
  await clock.pass(0);
  assert.deepEqual(heard.seqs, [1]);
  serve(() => json("his"));
  his.restart("Bob");
  const [keys, audit, log] = [polled(his, "/api/keys"), polled(his, "/api/audit"), ears()];
  his.follow(JOB, log);
  answer(json("hers"));
  await clock.pass(1000);
  assert.deepEqual([[...new Set(keys)], [...new Set(audit)]], [["his"], ["his"]]);
  assert.deepEqual(log.seqs, []); // the server was not yet asked whether he may
  server.line.send(manySaid(JOB, 1), manySaid(JOB, 2));
  await clock.pass(0);
  assert.deepEqual([heard.seqs, log.seqs], [[1, 2], [1, 2]]);
});

test("who comes in again finds what they were told before", async () => {
  const { server, clock, tab } = setUp();
  tab().restart("Alice");
  const one = tab();
  one.restart("Alice");
  server.json(1);
  server.json(2);
  polled(one, "/api/queues", 3600);
  await clock.pass(0);
  const two = tab();
  two.restart("Alice");
  const answers = polled(two, "/api/queues", 3600);
  await clock.pass(0);
  assert.deepEqual([answers[0], server.calls.length], [1, 2]);
});

test("a tab that comes after a sign-in is not told that nobody is signed in", async () => {
  const { server, clock, tab } = setUp();
  server.problem(401);
  polled(tab());
  await clock.pass(0);
  server.silent();
  const states = [];
  tab().connection(({ error }) => void states.push(error?.status ?? null));
  await clock.pass(0);
  assert.deepEqual([...new Set(states)], [null]);
});
