/** Requests, retries and errors of the client. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Windlass, WindlassError } from "../windlass.js";
import { JOB, done, setUp } from "./support/server.js";

const key = (call) => call.headers["Idempotency-Key"];

test("a retried enqueue uses the same idempotency key", async () => {
  const { client, server, clock } = setUp();
  server.unreachable();
  server.problem(503, {}, { "retry-after": "1" });
  server.responses.push((call) => {
    const job = { id: JOB, requestId: key(call), duplicate: true };
    return new Response(JSON.stringify(job), { status: 200 });
  });
  const answer = client.enqueue("film", { title: "seven" }, { priority: 5, tags: ["x"] });
  await clock.advance(3000);
  assert.deepEqual((await answer).duplicate, false); // created by an earlier try of the same call
  assert.equal(server.calls.length, 3);
  assert.equal(new Set(server.calls.map(key)).size, 1);
  assert.match(key(server.calls[0]), /^[0-9a-f]{32}$/);
  const body = { task: "film", arguments: { title: "seven" }, priority: 5, tags: ["x"] };
  for (const call of server.calls) assert.deepEqual(call.body, body);
});

test("a given requestId is sent unchanged and duplicates are reported", async () => {
  const { client, server } = setUp();
  server.json({ id: JOB, requestId: "film-7", duplicate: true });
  const answer = await client.enqueue("film", {}, { requestId: "film-7" });
  assert.equal(answer.duplicate, true);
  assert.equal(key(server.calls[0]), "film-7");
});

test("each enqueue has its own idempotency key", async () => {
  const { client, server } = setUp();
  server.json({ id: JOB });
  server.json({ results: [] });
  await client.enqueue("film");
  await client.batch([{ task: "film" }]);
  assert.notEqual(key(server.calls[0]), key(server.calls[1]));
  assert.deepEqual(server.calls[1].body, { jobs: [{ task: "film" }] });
});

test("an error response becomes a WindlassError with all fields and is not retried", async () => {
  const { client, server } = setUp();
  const problem = {
    type: "urn:windlass:problem:invalid_argument",
    title: "A value is wrong",
    code: "invalid_argument",
    detail: "task: none here", advice: "correct it", errors: [{ field: "task", message: "none" }],
  };
  server.problem(422, problem);
  const error = await client.enqueue("flim").catch((reason) => reason);
  assert.ok(error instanceof WindlassError);
  assert.equal(error.message, "A value is wrong: task: none here; correct it");
  assert.deepEqual(
    [error.type, error.title, error.detail, error.status, error.code, error.permanent],
    [problem.type, problem.title, problem.detail, 422, problem.code, true],
  );
  assert.deepEqual(error.fields, problem.errors);
  assert.equal(server.calls.length, 1);
});

test("an error without problem+json is reported by its status", async () => {
  const { client, server } = setUp({ retries: 0 });
  server.responses.push(() => new Response("<html>", { status: 502, statusText: "Bad Gateway" }));
  const error = await client.get(JOB).catch((reason) => reason);
  assert.equal(error.message, "HTTP 502: Bad Gateway");
  assert.deepEqual([error.status, error.permanent], [502, false]);
});

test("without a connection, a request fails after three retries", async () => {
  const { client, server, clock } = setUp();
  for (let n = 0; n < 9; n += 1) server.unreachable();
  const answer = client.get(JOB).catch((reason) => reason);
  await clock.advance(7000);
  const error = await answer;
  assert.equal(server.calls.length, 4);
  assert.deepEqual([error.code, error.status, error.permanent], ["connection", 0, false]);
  assert.match(error.message, /GET \/api\/jobs\/.* failed \(fetch failed\)/);
  assert.equal(error.cause.message, "fetch failed");
});

for (const [what, call] of [
  ["submit", (client) => client.submit(JOB)],
  ["delete", (client) => client.delete(JOB)],
  ["actions", (client) => client.actions({ action: "retry", filter: { state: ["failed"] } })],
  ["runSchedule", (client) => client.runSchedule("nightly")],
]) {
  test(`${what} is not retried: it is not idempotent`, async () => {
    const { client, server } = setUp();
    server.unreachable();
    await assert.rejects(call(client), { code: "connection" });
    assert.equal(server.calls.length, 1);
  });
}

for (const verb of ["cancel", "retry", "resume"]) {
  test(`${verb} is retried: it is idempotent`, async () => {
    const { client, server, clock } = setUp();
    server.unreachable();
    server.json({ id: JOB });
    const answer = client[verb](JOB);
    await clock.advance(1000);
    assert.deepEqual(await answer, { id: JOB });
    assert.equal(server.calls[1].url.pathname, `/api/jobs/${JOB}/${verb}`);
  });
}

test("a request times out", async () => {
  const { client, server, clock } = setUp({ timeout: 5000 });
  server.neverRespond();
  const answer = client.submit(JOB).catch((reason) => reason);
  await clock.advance(5000);
  assert.match((await answer).message, /no response to POST .* within 5000 ms/);
});

test("a signal aborts a request and its retry delay", async () => {
  const { client, server, clock } = setUp();
  const [one, two] = [new AbortController(), new AbortController()];
  server.neverRespond();
  const first = client.get(JOB, { signal: one.signal });
  one.abort();
  await assert.rejects(first, { name: "AbortError" });
  server.unreachable();
  const second = client.get(JOB, { signal: two.signal }).catch((reason) => reason);
  await clock.advance(500);
  two.abort();
  assert.equal((await second).name, "AbortError");
  assert.equal(server.calls.length, 2);
});

test("wait reads only new events, and none if the job has ended", async () => {
  const { client, server, clock } = setUp();
  server.json({ id: JOB, seq: 41, endedAt: null });
  const answer = client.wait(JOB);
  await clock.advance(0);
  server.json({ id: JOB, seq: 42, endedAt: "2026-01-31T12:00:00Z" });
  server.lastStream.send(done(42));
  assert.equal((await answer).seq, 42);
  assert.deepEqual(server.cursors, [null, "41", null]);
  server.json({ id: JOB, seq: 42, endedAt: "2026-01-31T12:00:00Z" });
  assert.equal((await client.wait(JOB)).seq, 42);
  assert.equal(server.calls.length, 4);
});

test("list reads page by page", async () => {
  const { client, server } = setUp();
  server.json({ jobs: [{ id: "1" }, { id: "2" }], cursor: "next" });
  server.json({ jobs: [], cursor: "more" });
  server.json({ jobs: [{ id: "3" }], cursor: null });
  const from = new Date("2026-01-31T12:00:00Z");
  const ids = [];
  for await (const job of client.list({ state: ["failed", "canceled"], createdFrom: from })) {
    ids.push(job.id);
  }
  assert.deepEqual(ids, ["1", "2", "3"]);
  assert.deepEqual(
    server.calls.map(({ url }) => url.search),
    ["", "&cursor=next", "&cursor=more"].map(
      (cursor) => `?state=failed&state=canceled&createdFrom=2026-01-31T12%3A00%3A00.000Z${cursor}`,
    ),
  );
});

test("an API key is sent in the header; without one, same-origin cookies are sent", async () => {
  const { client, server } = setUp({ key: "wl_1_2" });
  server.json({});
  await client.get(JOB);
  const [{ headers, init, url }] = server.calls;
  assert.equal(headers.Authorization, "Bearer wl_1_2");
  assert.equal(init.credentials, "omit");
  assert.equal(url.search, "");
  const other = setUp();
  other.server.json({});
  await other.client.get(JOB);
  assert.equal(other.server.calls[0].init.credentials, "same-origin");
  assert.equal("Authorization" in other.server.calls[0].headers, false);
});

test("a base path and special characters in names are encoded", async () => {
  const { client, server } = setUp({ url: "http://test/windlass/" });
  server.json({});
  server.json({});
  await client.pauseQueue("a/b c?");
  await client.getSchedule("é#1");
  assert.deepEqual(
    server.calls.map(({ url }) => url.href),
    ["queues/a%2Fb%20c%3F/pause", "schedules/%C3%A9%231"].map(
      (path) => `http://test/windlass/api/${path}`,
    ),
  );
});

test("outside of a page, url is required", () => {
  assert.throws(() => new Windlass(), /url is required: new Windlass\(\{ url:/);
});
