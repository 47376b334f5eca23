/** Every method of the client on a real server, given by WINDLASS_URL and WINDLASS_KEY. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Windlass, WindlassError } from "../../windlass.js";

const { WINDLASS_URL: url, WINDLASS_KEY: key } = process.env;
const client = new Windlass({ url, key });
const UNKNOWN_ID = "01890a5d-ac96-774b-bcce-b302099a8057";

test("enqueue, wait, attempts and why", async () => {
  const job = await client.enqueue("add", { a: 2, b: 3 }, { tags: ["js"], queue: "default" });
  assert.deepEqual([job.duplicate, job.task, job.tags], [false, "add", ["js"]]);
  const done = await client.job(job.id).wait();
  assert.deepEqual([done.state, done.result, done.percent], ["succeeded", 5, 100]);
  const [attempt] = await client.attempts(job.id);
  assert.deepEqual([attempt.number, attempt.outcome], [1, "succeed"]);
  assert.equal((await client.why(job.id)).state, "succeeded");
});

test("the same requestId returns the same job; another payload is a conflict", async () => {
  const once = await client.enqueue("add", { a: 1 }, { requestId: "once" });
  const twice = await client.enqueue("add", { a: 1 }, { requestId: "once" });
  assert.deepEqual([twice.id, twice.duplicate], [once.id, true]);
  const error = await client.enqueue("add", { a: 2 }, { requestId: "once" }).catch((e) => e);
  assert.deepEqual([error.status, error.code], [409, "conflict"]);
});

test("a batch returns a result per job", async () => {
  const answers = await client.batch([
    { task: "add", arguments: { a: 1 } },
    { task: "nothing" },
    { task: "add", arguments: { a: "x" } },
  ]);
  assert.deepEqual(answers.map((answer) => answer.status), ["created", "refused", "refused"]);
  assert.equal(answers[1].problem?.errors?.[0].field, "task");
});

test("an invalid argument is reported by field", async () => {
  const error = await client.enqueue("add", { a: "x" }).catch((reason) => reason);
  assert.ok(error instanceof WindlassError);
  assert.deepEqual([error.status, error.fields[0].field], [422, "arguments.a"]);
  assert.equal((await client.get(UNKNOWN_ID).catch((reason) => reason)).status, 404);
});

test("list, page, count and bulk actions", async () => {
  const like = { task: "add", hold: true, tags: ["listed"] };
  const jobs = [0, 1, 2, 3, 4].map((a) => ({ ...like, arguments: { a } }));
  const made = (await client.batch(jobs)).map((answer) => answer.job?.id);
  const found = [];
  for await (const job of client.list({ tag: "listed", limit: 2 })) found.push(job.id);
  assert.deepEqual(found, made.reverse());
  const page = await client.page({ tag: "listed", limit: 2 });
  assert.equal(page.jobs.length, 2);
  assert.deepEqual(await client.count({ text: "LISTE" }), { count: 5, capped: false });
  assert.equal((await client.page({ text: "isted", limit: 3 })).jobs.length, 3);
  const filter = { tag: ["listed"] };
  const answer = await client.actions({ action: "cancel", filter, reason: "x" });
  assert.deepEqual([answer.matched, answer.done, answer.refused], [5, 5, []]);
});

test("a held job is submitted, a canceled one retried, a finished one deleted", async () => {
  const held = await client.enqueue("add", { a: 1 }, { hold: true });
  assert.equal((await client.why(held.id)).reasons[0].code, "held");
  assert.equal((await client.submit(held.id)).state, "queued");
  await client.wait(held.id);

  const other = await client.enqueue("add", { a: 1 }, { hold: true });
  const answer = await client.cancel(other.id, { reason: "wrong film" });
  assert.deepEqual([answer.status, answer.cleanupScheduled], ["canceled", false]);
  assert.equal((await client.get(other.id)).cancelReason, "wrong film");
  const again = await client.retry(other.id);
  assert.equal(again.retryOf, other.id);
  await client.delete(held.id);
  assert.equal((await client.get(held.id).catch((reason) => reason)).status, 404);
});

test("a failed job is resumed", async () => {
  const job = await client.enqueue("stepped", { success_file: "/nowhere" });
  const failed = await client.wait(job.id);
  assert.deepEqual([failed.state, failed.canResume], ["failed", true]);
  assert.equal((await client.resume(job.id)).retryOf, job.id);
  const { groups, capped } = await client.failures({ since: new Date(Date.now() - 3_600_000) });
  const group = groups.find((one) => one.task === "stepped");
  assert.deepEqual([group?.type, group?.message, capped], ["RuntimeError", "the success file is missing", false]);
});

test("queues, workers, tasks and stats", async () => {
  assert.ok((await client.queues()).some((queue) => queue.name === "default"));
  assert.equal((await client.pauseQueue("a/b")).paused, true);
  assert.equal((await client.resumeQueue("a/b")).paused, false);
  assert.equal((await client.workers()).length, 1);
  const add = (await client.tasks()).find((task) => task.name === "add");
  assert.deepEqual(add?.arguments.required, ["a"]);
  assert.equal((await client.stats({ step: 60 })).step, 60);
  assert.equal((await client.flow(UNKNOWN_ID).catch((reason) => reason)).status, 404);
});

test("a schedule is added, paused, resumed, run, deleted", async () => {
  const schedule = { name: "night/ly", task: "add", arguments: { a: 1 }, cron: "30 3 * * *" };
  assert.equal((await client.addSchedule(schedule)).cron, "30 3 * * *");
  assert.equal((await client.pauseSchedule("night/ly")).paused, true);
  assert.equal((await client.resumeSchedule("night/ly")).paused, false);
  assert.equal((await client.runSchedule("night/ly")).task, "add");
  assert.equal((await client.getSchedule("night/ly")).name, "night/ly");
  assert.deepEqual((await client.schedules()).map((one) => one.name), ["night/ly"]);
  await client.deleteSchedule("night/ly");
  assert.deepEqual(await client.schedules(), []);
});

test("without a valid key, streams and requests fail permanently", async () => {
  for (const wrong of [null, "wl_5e5250166f48_no"]) {
    const stranger = new Windlass({ url, key: wrong });
    const error = await stranger.page().catch((reason) => reason);
    assert.deepEqual([error.status, error.permanent], [401, true]);
    const refused = await stranger.events(UNKNOWN_ID).next().catch((reason) => reason);
    assert.equal(refused.status, 401);
  }
  const missing = await client.events(UNKNOWN_ID).next().catch((reason) => reason);
  assert.equal(missing.status, 404);
});

test("a graph shows the jobs around a job", async () => {
  const parent = await client.enqueue("add", { a: 1 }, { hold: true });
  const child = await client.enqueue("add", { a: 1 }, { dependsOn: [parent.id] });
  const { jobs, capped } = await client.job(parent.id).graph();
  const edges = jobs.map((job) => [job.id, job.dependsOn]);
  assert.deepEqual(edges, [[parent.id, []], [child.id, [parent.id]]]);
  assert.equal(capped, false);
});

test("limits and summed statistics", async () => {
  assert.deepEqual(await client.limits(), []);
  const { rows } = await client.stats({ by: "none", step: 3600 });
  assert.ok(rows.length > 0 && rows.every((row) => row.queue === null && row.task === null));
});

test("flows are listed", async () => {
  assert.deepEqual(await client.flows({ limit: 5, cursor: null }), { flows: [], cursor: null });
});
