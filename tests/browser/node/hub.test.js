/** Tabs and their hub in Node, with a scripted server, virtual time and fake ports. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { JOB, ScriptedServer, recorder, sharedEvent } from "../client/test/support/server.js";
import { VirtualClock } from "../client/test/support/clock.js";
import { Hub } from "../live/hub.js";
import { HubClient } from "../live/hub-client.js";

const QUIET = { debug() {}, warn() {}, error() {} };
const message = (type, data) => `event: ${type}\ndata: ${JSON.stringify(data)}\n\n`;

/** Pair of ports that deliver copies asynchronously, until cut. */
function portPair() {
  const state = { cut: false };
  const end = (/** @type {() => any} */ other) => ({
    onmessage: null,
    close() {},
    postMessage: (value) => {
      const data = structuredClone(value);
      queueMicrotask(() => state.cut || other().onmessage?.({ data }));
    },
  });
  const [tab, hub] = [end(() => hub), end(() => tab)];
  return { tab, hub, state };
}

function setUp() {
  const [server, clock] = [new ScriptedServer(), new VirtualClock()];
  const make = () =>
    new Hub({ url: "http://test", fetch: server.fetch, log: QUIET, timers: clock });
  const context = { server, clock, hub: make(), make, pairs: [] };
  context.tab = (visible = true, timers = clock) => {
    const open = async () => {
      const { tab, hub, state } = portPair();
      context.pairs.push(state);
      context.hub.join(hub);
      return tab;
    };
    return new HubClient({ open, lock: Promise.resolve(null), visible, timers, log: QUIET });
  };
  return context;
}

function polled(link, path = "/api/queues", seconds = 10) {
  const answers = [];
  link.poll(path, seconds, (answer, error) => void answers.push(error?.status ?? answer));
  return answers;
}

const paths = (server) => server.calls.map(({ url }) => url.pathname);

test("tabs share one poll with the shortest of their periods", async () => {
  const { server, clock, tab } = setUp();
  for (const n of [1, 2, 3]) server.json(n);
  const one = polled(tab(), "/api/queues", 60);
  await clock.advance(5000);
  const two = polled(tab(), "/api/queues", 10);
  await clock.advance(0);
  assert.deepEqual([one, two], [[1], [1]]); // the last known answer, at once
  await clock.advance(5000);
  assert.deepEqual([one, two], [[1, 2], [1, 2]]);
  await clock.advance(10_000);
  assert.deepEqual([one, two, server.calls.length], [[1, 2, 3], [1, 2, 3], 3]);
});

test("nothing is polled while all tabs are hidden", async () => {
  const { server, clock, tab } = setUp();
  for (const n of [1, 2, 3]) server.json(n);
  const [one, two] = [tab(), tab(false)];
  const answers = polled(one);
  polled(two);
  await clock.advance(0);
  one.setVisible(false);
  await clock.advance(100_000);
  assert.deepEqual(answers, [1]);
  two.setVisible(true);
  await clock.advance(0);
  assert.deepEqual(answers, [1, 2]); // overdue
  await clock.advance(9000);
  one.setVisible(true);
  await clock.advance(0);
  assert.deepEqual(answers, [1, 2]); // not due yet
});

test("a refresh polls now, and again after a pending response", async () => {
  const { server, clock, tab } = setUp();
  const link = tab();
  let answer = (_) => {};
  server.responses.push(() => new Promise((resolve) => (answer = resolve)));
  server.json("after");
  const answers = polled(link, "/api/jobs?state=failed", 3600);
  await clock.advance(0);
  link.refresh("/api/jobs");
  await clock.advance(0);
  assert.equal(server.calls.length, 1);
  answer(new Response('"before"', { headers: { "content-type": "application/json" } }));
  await clock.advance(0);
  assert.deepEqual([answers, server.calls.length], [["after"], 2]);
});

test("polls determine the connection state when nothing is followed", async () => {
  const { server, clock, tab } = setUp();
  const [link, states] = [tab(), []];
  link.connection(({ open, error }) => void states.push(open ? "open" : (error?.code ?? null)));
  server.json(1);
  server.unreachable();
  server.json(3);
  const answers = polled(link);
  await clock.advance(20_000);
  assert.deepEqual(answers, [1, 0, 3]);
  assert.deepEqual(states, [null, null, "open", "connection", "open"]);
});

test("after a permanent error, nothing is polled until a refresh", async () => {
  const { server, clock, tab } = setUp();
  const link = tab();
  server.problem(403);
  const answers = polled(link);
  await clock.advance(100_000);
  assert.deepEqual([answers, server.calls.length], [[403], 1]);
  server.json(2);
  link.refresh("/api/queues");
  await clock.advance(0);
  assert.deepEqual(answers, [403, 2]);
});

test("polls respect Retry-After", async () => {
  const { server, clock, tab } = setUp();
  server.responses.push(() => new Response("{}", { status: 429, headers: { "retry-after": "30" } }));
  server.json(2);
  const answers = polled(tab(), "/api/queues", 2);
  await clock.advance(29_000);
  assert.deepEqual([answers, server.calls.length], [[429], 1]);
  await clock.advance(2000);
  assert.deepEqual([answers, server.calls.length], [[429, 2], 2]);
});

test("polling pauses while the stream is broken and resumes with it", async () => {
  const { server, clock, tab } = setUp();
  const link = tab();
  const stop = link.follow(JOB, {});
  await clock.advance(50);
  server.json(1);
  const answers = polled(link, "/api/queues", 2);
  await clock.advance(0);
  for (let n = 0; n < 3; n += 1) server.unreachable();
  server.lastStream.fail();
  await clock.advance(1000 + 2000);
  server.responses = [];
  assert.deepEqual(answers, [1]);
  const calls = server.calls.length;
  server.responses.push(({ init }) => server.stream(init.signal));
  server.json(2);
  server.json(3);
  await clock.advance(4000);
  assert.deepEqual([answers, server.calls.length], [[1, 2], calls + 2]);
  stop();
  await clock.advance(2000);
  assert.deepEqual(answers, [1, 2, 3]);
});

test("after 401 no request is sent until a restart or a new tab", async () => {
  const { server, clock, tab } = setUp();
  const [link, states, recorded] = [tab(), [], recorder()];
  link.connection(({ open, error }) => void states.push(open ? "open" : (error?.status ?? null)));
  for (let n = 0; n < 4; n += 1) server.problem(401);
  link.follow(JOB, recorded);
  const answers = polled(link);
  await clock.advance(1_000_000);
  assert.deepEqual(paths(server).sort(), ["/api/events", "/api/queues"]);
  assert.deepEqual([states.at(-1), answers], [401, [401]]);
  link.restart(); // too early
  await clock.advance(1_000_000);
  assert.deepEqual([server.calls.length, states.at(-1), answers], [4, 401, [401, 401]]);
  server.responses.push(({ init }) => server.stream(init.signal));
  server.json("in");
  server.json("in"); // polled again because the stream is back
  tab().connection(() => {}); // a signed-in page
  await clock.advance(100);
  server.lastStream.send(sharedEvent(JOB, 1));
  await clock.advance(0);
  assert.deepEqual([states.at(-1), recorded.seqs, recorded.errors], ["open", [1], []]);
  assert.deepEqual([...new Set(answers)], [401, "in"]);
});

test("a silent tab is dropped, and continues when it wakes", async () => {
  const { server, clock, tab } = setUp();
  const frozen = new VirtualClock();
  const recorded = recorder();
  tab(true, frozen).follow(JOB, recorded);
  await clock.advance(100);
  server.lastStream.send(sharedEvent(JOB, 1));
  for (let n = 0; n < 30 && !server.lastStream.aborted; n += 1) {
    server.lastStream.send(": keepalive: x\n\n");
    await clock.advance(10_000);
  }
  assert.deepEqual([server.lastStream.aborted, server.calls.length], [true, 1]);
  await frozen.advance(15_000);
  await clock.advance(100);
  assert.equal(server.calls.at(-1).url.searchParams.get("after"), `${JOB}:1`);
  server.lastStream.send(sharedEvent(JOB, 2));
  await clock.advance(0);
  assert.deepEqual(recorded.seqs, [1, 2]);
});

test("a restored tab continues after its last event", async () => {
  const { server, clock, tab } = setUp();
  const [link, recorded, calls] = [tab(), recorder(), []];
  link.follow(JOB, recorded);
  link.list({}, ({ id, listed }) => void calls.push([id, listed]));
  await clock.advance(100);
  const snapshot = (id) => message("snapshot", { list: "", id, seq: 1, state: null, listed: true });
  const whole = message("loaded", { list: "" });
  server.lastStream.send(sharedEvent(JOB, 1), sharedEvent(JOB, 2));
  server.lastStream.send(snapshot("a"), snapshot("b"), whole);
  await clock.advance(0);
  link.leave(); // the page is in the back/forward cache
  await clock.advance(1000);
  assert.equal(server.lastStream.aborted, true);
  link.subscribeAll();
  await clock.advance(1000);
  assert.equal(server.calls.at(-1).url.searchParams.get("after"), `${JOB}:2`);
  server.lastStream.send(sharedEvent(JOB, 3), snapshot("a"), snapshot("c"), whole);
  await clock.advance(0);
  assert.deepEqual(recorded.seqs, [1, 2, 3]);
  assert.deepEqual(calls, [["a", true], ["b", true], ["c", true], ["b", false]]);
});

test("events in flight during a new subscription are delivered once", async () => {
  const { server, clock, tab } = setUp();
  const [link, seqs] = [tab(), []];
  link.follow(JOB, {
    onEvent: ({ seq }) => {
      seqs.push(seq);
      if (seq === 2) link.subscribeAll();
    },
  });
  await clock.advance(100);
  server.lastStream.send(...[1, 2, 3, 4].map((seq) => sharedEvent(JOB, seq)));
  await clock.advance(1000);
  assert.deepEqual(seqs, [1, 2, 3, 4]);
});

test("a dead hub is replaced without losing events", async () => {
  const context = setUp();
  const { server, clock, tab, pairs, make } = context;
  const [link, recorded] = [tab(), recorder()];
  link.follow(JOB, recorded);
  await clock.advance(100);
  server.lastStream.send(sharedEvent(JOB, 1));
  await clock.advance(0);
  pairs[0].cut = true; // the worker is dead
  context.hub = make();
  await clock.advance(65_000);
  assert.equal(pairs.length, 2);
  assert.equal(server.calls.at(-1).url.searchParams.get("after"), `${JOB}:1`);
  server.lastStream.send(sharedEvent(JOB, 1), sharedEvent(JOB, 2));
  await clock.advance(0);
  assert.deepEqual(recorded.seqs, [1, 2]);
});

test("data of one user is not shown to the next", async () => {
  const { server, clock, tab } = setUp();
  const [hers, his] = [tab(), tab()];
  let answer = (_) => {};
  const json = (value) =>
    new Response(JSON.stringify(value), { headers: { "content-type": "application/json" } });
  const serve = (respond) => {
    server.always = (call) =>
      call.headers.Accept === "text/event-stream" ? server.stream(call.init.signal) : respond(call);
  };
  serve(({ url }) =>
    url.pathname === "/api/keys" ? json("hers") : new Promise((resolve) => (answer = resolve)),
  );
  hers.restart("Alice");
  polled(hers, "/api/keys", 3600);
  polled(hers, "/api/audit", 3600);
  const recorded = recorder();
  hers.follow(JOB, recorded);
  await clock.advance(100);
  server.lastStream.send(sharedEvent(JOB, 1));
  await clock.advance(0);
  assert.deepEqual(recorded.seqs, [1]);
  serve(() => json("his"));
  his.restart("Bob");
  const [keys, audit, log] = [polled(his, "/api/keys"), polled(his, "/api/audit"), recorder()];
  his.follow(JOB, log);
  answer(json("hers"));
  await clock.advance(1000);
  assert.deepEqual([[...new Set(keys)], [...new Set(audit)]], [["his"], ["his"]]);
  assert.deepEqual(log.seqs, []); // the server has not yet authorized him
  server.lastStream.send(sharedEvent(JOB, 1), sharedEvent(JOB, 2));
  await clock.advance(0);
  assert.deepEqual([recorded.seqs, log.seqs], [[1, 2], [1, 2]]);
});

test("the same user finds cached answers after a new sign-in", async () => {
  const { server, clock, tab } = setUp();
  tab().restart("Alice");
  const one = tab();
  one.restart("Alice");
  server.json(1);
  server.json(2);
  polled(one, "/api/queues", 3600);
  await clock.advance(0);
  const two = tab();
  two.restart("Alice");
  const answers = polled(two, "/api/queues", 3600);
  await clock.advance(0);
  assert.deepEqual([answers[0], server.calls.length], [1, 2]);
});

test("a tab opened after a sign-in does not get the old 401", async () => {
  const { server, clock, tab } = setUp();
  server.problem(401);
  polled(tab());
  await clock.advance(0);
  server.neverRespond();
  const states = [];
  tab().connection(({ error }) => void states.push(error?.status ?? null));
  await clock.advance(0);
  assert.deepEqual([...new Set(states)], [null]);
});
