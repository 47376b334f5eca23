"""A worker from its first claim to its stop, also on a store that fails."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.worker.event_waits import WAIT_TIMEOUT, is_running, wait_for_event
from tests.worker.spy_store import SpyStore
from tests.worker.workers import make_worker, run_burst, running_worker

from windlass import Context, Job, JobFailedError, Windlass, fixed
from windlass.core.errors import StoreUnavailableError
from windlass.core.event import EventType
from windlass.core.job.state import State, Trigger
from windlass.core.query.job_query import JobQuery
from windlass.store import Retention
from windlass.testing.clock import VirtualClock
from windlass.testing.factories import claim_all, enqueue_one, set_paused
from windlass.testing.faulty_store import FaultyStore
from windlass.worker.loops.sweeper import Sweeper

FOREVER = 3600.0


@pytest.fixture
async def app() -> AsyncIterator[Windlass]:
    app = Windlass("memory:")
    yield app
    await app.aclose()


@pytest.fixture
async def file(tmp_path: Path) -> AsyncIterator[Windlass]:
    app = Windlass(f"sqlite:///{tmp_path}/jobs.db?durability=off")
    yield app
    await app.aclose()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def timed(clock: VirtualClock) -> AsyncIterator[Windlass]:
    app = Windlass("memory:", clock=clock)
    yield app
    await app.aclose()


async def attempts_of(job: Job[Any]) -> list[Trigger | None]:
    found = await job._app.client().store.insights.attempts(job.id)
    assert found is not None
    return [attempt.outcome for attempt in found]


# -- slots and queues


async def test_no_more_jobs_run_at_once_than_there_are_slots(file: Windlass) -> None:
    now, peak = 0, 0

    @file.task
    async def task() -> None:
        nonlocal now, peak
        now += 1
        peak = max(peak, now)
        await asyncio.sleep(0.01)
        now -= 1

    await file.aenqueue_many([task.new_job() for _ in range(20)])
    worker = await run_burst(file, queues={"default": 3})
    assert peak == 3
    assert worker.settled == {State.SUCCEEDED: 20}


async def test_a_full_queue_does_not_block_another(app: Windlass) -> None:
    @app.task(queue="slow")
    async def slow() -> None:
        await asyncio.sleep(FOREVER)

    @app.task(queue="quick")
    async def quick() -> int:
        return 1

    stuck = [await slow.aenqueue() for _ in range(2)]
    async with running_worker(app, queues={"slow": 1, "quick": 1}, grace=0.01):
        await wait_for_event(stuck[0], is_running)
        assert await (await quick.aenqueue()).aresult(WAIT_TIMEOUT) == 1
        assert (await stuck[1].arefresh()).state is State.QUEUED


async def test_the_highest_priority_runs_first(app: Windlass) -> None:
    order: list[int] = []

    @app.task
    async def task(n: int) -> None:
        order.append(n)

    for n in (1, 3, 2):
        await task.options(priority=n).aenqueue(n)
    await run_burst(app, queues={"default": 1})
    assert order == [3, 2, 1]


async def test_a_waiting_worker_starts_a_new_job_without_polling(file: Windlass) -> None:
    @file.task
    async def task() -> int:
        return 1

    async with running_worker(file, poll_interval=WAIT_TIMEOUT) as worker:
        for _ in range(3):
            job = await task.aenqueue()
            assert await job.aresult(WAIT_TIMEOUT / 2) == 1
        worker.stop()
        await task.aenqueue()  # wakes the worker, which then detects the stop


# -- bursts


async def test_a_burst_ends_when_its_queues_are_empty(app: Windlass) -> None:
    @app.task(backoff=fixed(0.01))
    async def succeeds_on_retry(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise ValueError

    jobs = [
        await succeeds_on_retry.aenqueue(),
        await succeeds_on_retry.options(delay=0.02).aenqueue(),
    ]
    worker = await run_burst(app)
    assert worker.settled == {State.RETRYING: 2, State.SUCCEEDED: 2}
    assert {(await job.arefresh()).state for job in jobs} == {State.SUCCEEDED}


async def test_a_burst_does_not_wait_for_jobs_that_it_cannot_claim(app: Windlass) -> None:
    @app.task(queue="paused")
    async def task() -> None: ...

    await set_paused(app.client().store, ["paused"], paused=True)
    waiting = [
        await task.aenqueue(),
        await task.options(queue="default", hold=True).aenqueue(),
        await task.options(queue="of-others").aenqueue(),
    ]
    worker = await run_burst(app, queues={"default": 1, "paused": 1})
    assert worker.settled == {}
    assert [(await job.arefresh()).row.final for job in waiting] == [False] * 3


# -- cancels


async def test_a_running_async_task_is_cancelled_and_may_clean_up(app: Windlass) -> None:
    cleaned = asyncio.Event()

    @app.task
    async def endless() -> None:
        try:
            await asyncio.sleep(FOREVER)
        finally:
            cleaned.set()

    job = await endless.aenqueue()
    async with running_worker(app, cancel_poll_interval=0.01):
        await wait_for_event(job, is_running)
        assert await job.acancel("enough") is State.RUNNING
        await job.await_end(WAIT_TIMEOUT)
    assert cleaned.is_set()
    assert (job.state, job.row.cancel_reason) == (State.CANCELED, "enough")


async def test_a_running_thread_ends_canceled_when_it_returns(app: Windlass) -> None:
    @app.task
    def cooperative(ctx: Context) -> str:
        return (
            "canceled" if ctx.cancel_flag.wait(WAIT_TIMEOUT) and ctx.cancelled else "not canceled"
        )

    job = await cooperative.aenqueue()
    async with running_worker(app, cancel_poll_interval=0.01):
        await wait_for_event(job, is_running)
        await job.acancel()
        await job.await_end(WAIT_TIMEOUT)
    assert (job.state, job.row.result) == (State.CANCELED, None)


async def test_an_accepted_cancel_wins_over_a_success(app: Windlass) -> None:
    go = asyncio.Event()

    @app.task
    async def finishes() -> str:
        await go.wait()
        return "done"

    job = await finishes.aenqueue()
    async with running_worker(app) as worker:
        await wait_for_event(job, is_running)
        await job.acancel()
        go.set()
        await job.await_end(WAIT_TIMEOUT)
    assert job.state is State.CANCELED
    assert worker.settled == {State.CANCELED: 1}


# -- lost leases


def cut_off(app: Windlass, until: threading.Event) -> SpyStore:
    """Return a store that extends no lease until the event is set, so that leases expire."""

    def on_call(verb: str) -> None:
        if verb == "extend" and not until.is_set():
            raise StoreUnavailableError("unavailable")

    return SpyStore(app.client().store.twin(), on_call)


async def test_a_lost_lease_stops_the_task_and_drops_its_result(
    timed: Windlass, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    stopped = asyncio.Event()
    lost = threading.Event()

    @timed.task
    async def task(ctx: Context) -> str:
        if ctx.attempt == 1:
            try:
                await asyncio.sleep(FOREVER)
            finally:
                stopped.set()
        lost.set()
        return f"by attempt {ctx.attempt}"

    job = await task.aenqueue()
    async with running_worker(timed, cut_off(timed, lost), lease=0.3):
        await wait_for_event(job, is_running)
        clock.advance(60)  # as after a suspend of the machine
        assert await job.aresult(WAIT_TIMEOUT) == "by attempt 2"
        await asyncio.wait_for(stopped.wait(), WAIT_TIMEOUT)  # long before the worker stops
    assert (job.row.attempt, job.row.crash_count) == (2, 1)
    assert any("lease expired; result discarded" in line for line in caplog.messages)


async def test_a_thread_that_lost_its_lease_does_not_affect_the_next_attempt(
    timed: Windlass, clock: VirtualClock
) -> None:
    """Both are in one worker: the thread cannot be stopped, and the job is claimed again."""
    go, second = threading.Event(), threading.Event()

    @timed.task
    def task(ctx: Context) -> str:
        if ctx.attempt == 1:
            assert go.wait(WAIT_TIMEOUT)
            return "stale"
        second.set()
        assert go.wait(WAIT_TIMEOUT)
        return "current"

    @timed.task
    async def after() -> int:
        return 1

    job = await task.aenqueue()
    async with running_worker(
        timed, cut_off(timed, second), lease=0.3, queues={"default": 2}
    ) as worker:
        await wait_for_event(job, is_running)
        clock.advance(60)
        assert await asyncio.to_thread(second.wait, WAIT_TIMEOUT)
        go.set()
        assert await job.aresult(WAIT_TIMEOUT) == "current"
        assert await (await after.aenqueue()).aresult(WAIT_TIMEOUT) == 1
    assert worker.settled == {State.SUCCEEDED: 2}


# -- stopping


async def test_a_stop_lets_running_tasks_finish_and_claims_no_more(app: Windlass) -> None:
    started, go = asyncio.Event(), asyncio.Event()

    @app.task
    async def task() -> str:
        started.set()
        await go.wait()
        return "finished"

    first, second = [await task.aenqueue() for _ in range(2)]
    async with running_worker(app, queues={"default": 1}, grace=WAIT_TIMEOUT) as worker:
        await asyncio.wait_for(started.wait(), WAIT_TIMEOUT)
        worker.stop()
        go.set()
    assert await first.aresult(WAIT_TIMEOUT) == "finished"
    assert (await second.arefresh()).state is State.QUEUED


async def test_jobs_that_exceed_the_grace_period_are_released_uncounted(file: Windlass) -> None:
    @file.task
    async def long_running(ctx: Context) -> int:
        if ctx.attempt == 1:
            ctx.progress(30)
            await asyncio.sleep(FOREVER)
        return ctx.attempt

    @file.task
    def run_on_thread(ctx: Context) -> int:
        if ctx.attempt == 1:
            ctx.cancel_flag.wait(WAIT_TIMEOUT)
        return ctx.attempt

    jobs: list[Job[int]] = [await long_running.aenqueue(), await run_on_thread.aenqueue()]
    async with running_worker(file, grace=0.05):
        for job in jobs:
            await wait_for_event(job, is_running)
    for job in jobs:
        row = (await job.arefresh()).row
        assert (row.state, row.attempt) == (State.QUEUED, 1)
        assert (row.retry_count, row.crash_count) == (0, 0)
    await run_burst(file)
    for job in jobs:
        assert await job.aresult(WAIT_TIMEOUT) == 2
        assert await attempts_of(job) == [Trigger.RELEASE, Trigger.SUCCEED]


async def test_a_cancelled_worker_releases_its_running_jobs(file: Windlass) -> None:
    """Ctrl-C cancels a worker: no task may continue after the keeper has stopped."""
    ended = asyncio.Event()

    @file.task
    async def task() -> None:
        try:
            await asyncio.sleep(FOREVER)
        finally:
            ended.set()

    job = await task.aenqueue()
    run = asyncio.create_task(make_worker(file).run())
    await wait_for_event(job, is_running)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(run, WAIT_TIMEOUT)
    assert ended.is_set()
    assert (await job.arefresh()).state is State.QUEUED
    assert await attempts_of(job) == [Trigger.RELEASE]


async def test_a_worker_leaves_no_thread_behind(file: Windlass) -> None:
    @file.task
    def task() -> None: ...

    await task.aenqueue()
    await run_burst(file)
    names = {thread.name for thread in threading.enumerate()}
    assert not any(name.startswith(("windlass-keeper", "windlass-task")) for name in names)


# -- a store that fails


async def test_jobs_survive_a_store_that_loses_requests_and_responses(app: Windlass) -> None:
    runs: list[int] = []

    @app.task(max_retries=0)
    async def task(ctx: Context, n: int) -> int:
        runs.append(n)

        async def piece() -> int:
            return n

        return await ctx.astep("piece", piece)

    jobs = await app.aenqueue_many([task.new_job(n) for n in range(12)])
    faulty = FaultyStore(
        app.client().store.twin(), Random(11).random, lose=0.2, repeat=0.2, delay=True,
        raise_lost=True,
    )  # fmt: skip
    worker = await run_burst(app, faulty, lease=WAIT_TIMEOUT)
    assert [await job.aresult(WAIT_TIMEOUT) for job in jobs] == list(range(12))
    assert sorted(runs) == list(range(12))
    assert {job.row.attempt for job in jobs} == {1}
    assert worker.settled == {State.SUCCEEDED: 12}


class FirstCallsFail:
    """Raises at the first calls of some verbs, as often as given."""

    def __init__(self, **times: int) -> None:
        self.left = times

    def __call__(self, verb: str) -> None:
        if self.left.get(verb, 0) > 0:
            self.left[verb] -= 1
            raise StoreUnavailableError(f"{verb}: unavailable")


@pytest.mark.parametrize("verb", ["claim", "apply", "wait", "stats", "due", "prune"])
async def test_a_store_call_that_fails_temporarily_does_not_end_the_worker(
    app: Windlass, verb: str, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task
    async def task() -> int:
        await asyncio.sleep(0.02)
        return 1

    job = await task.aenqueue()
    first_calls_fail = FirstCallsFail(**{verb: 2})
    spy = SpyStore(app.client().store.twin(), first_calls_fail)
    async with running_worker(app, spy):
        assert await job.aresult(WAIT_TIMEOUT) == 1
    await run_burst(app, SpyStore(app.client().store.twin(), FirstCallsFail(stats=1)))
    assert job.row.attempt == 1
    if verb in {"claim", "apply"}:
        assert first_calls_fail.left[verb] == 0
        assert any("retrying" in line for line in caplog.messages)


async def test_a_settle_whose_response_was_lost_is_repeated_and_counts_once(app: Windlass) -> None:
    settles = 0

    class LostApplyResponse(SpyStore):
        async def apply(self, transitions: Any) -> Any:
            nonlocal settles
            results = await self.store.apply(transitions)
            if any(transition.trigger is Trigger.SUCCEED for transition in transitions):
                settles += 1
                if settles == 1:
                    raise StoreUnavailableError("the response was lost")
            return results

    @app.task
    async def task(ctx: Context) -> int:
        ctx.log("logged once")
        return ctx.attempt

    job = await task.aenqueue()
    worker = await run_burst(app, LostApplyResponse(app.client().store.twin()))
    assert await job.aresult(WAIT_TIMEOUT) == 1
    assert settles == 2
    assert worker.settled == {State.SUCCEEDED: 1}
    kinds = [event.type async for event in job.aevents()]
    assert kinds.count(EventType.LOG) == kinds.count(EventType.JOB_COMPLETED) == 1


async def test_a_claim_whose_response_was_lost_loses_no_job(app: Windlass) -> None:
    claims: list[Any] = []

    class LostClaimResponse(SpyStore):
        async def claim(self, claim: Any) -> Any:
            claims.append(claim.token)
            jobs = await self.store.claim(claim)
            if len(claims) == 1:
                raise StoreUnavailableError("the response was lost")
            return jobs

    @app.task
    async def task() -> int:
        return 1

    jobs = await app.aenqueue_many([task.new_job() for _ in range(3)])
    await run_burst(app, LostClaimResponse(app.client().store.twin()), lease=WAIT_TIMEOUT)
    assert [await job.aresult(WAIT_TIMEOUT) for job in jobs] == [1, 1, 1]
    assert {job.row.attempt for job in jobs} == {1}
    assert claims[0] == claims[1] != claims[2]


async def test_events_during_a_store_outage_are_stored_with_the_settle(app: Windlass) -> None:
    first_calls_fail = FirstCallsFail(record=1)
    tried = asyncio.Event()

    def on_call(verb: str) -> None:
        if verb == "record":
            tried.set()
        first_calls_fail(verb)

    @app.task
    async def task(ctx: Context) -> None:
        ctx.log("one")
        await tried.wait()
        ctx.log("two")

    job = await task.aenqueue()
    await run_burst(app, SpyStore(app.client().store.twin(), on_call))
    lines = [event async for event in job.aevents() if event.type is EventType.LOG]
    assert [b"one" in (lines[0].body or b""), b"two" in (lines[1].body or b"")] == [True, True]
    assert len(lines) == 2


# -- two workers


async def test_two_workers_share_a_queue_and_no_job_runs_twice(file: Windlass) -> None:
    runs: list[int] = []

    @file.task
    async def task(n: int) -> None:
        runs.append(n)
        await asyncio.sleep(0)

    await file.aenqueue_many([task.new_job(n) for n in range(200)])
    workers = await asyncio.gather(run_burst(file), run_burst(file))
    assert sorted(runs) == list(range(200))
    assert sum(worker.settled[State.SUCCEEDED] for worker in workers) == 200


# -- tasks that must not affect the worker or other jobs


async def test_a_sync_call_on_the_worker_loop_is_refused(
    file: Windlass,
) -> None:
    @file.task
    async def child() -> int:
        return 5

    @file.task(max_retries=0)
    async def calls_sync_method() -> int:
        return child.enqueue().result()

    job = await calls_sync_method.aenqueue()
    await run_burst(file)
    with pytest.raises(JobFailedError, match="await the async method"):
        await job.aresult(WAIT_TIMEOUT)


async def test_an_error_caused_by_a_release_is_not_a_failure(file: Windlass) -> None:
    @file.task(max_retries=0)
    async def raises_when_cancelled(ctx: Context) -> int:
        if ctx.attempt == 1:
            try:
                await asyncio.sleep(FOREVER)
            except asyncio.CancelledError:
                raise RuntimeError("not cancelled") from None
        return ctx.attempt

    job = await raises_when_cancelled.aenqueue()
    async with running_worker(file, grace=0.05):
        await wait_for_event(job, is_running)
    assert await attempts_of(job) == [Trigger.RELEASE]
    await run_burst(file)
    assert await job.aresult(WAIT_TIMEOUT) == 2


async def test_a_keyboard_interrupt_in_a_thread_fails_only_its_job(file: Windlass) -> None:
    @file.task(max_retries=0)
    def raises_keyboard_interrupt() -> None:
        raise KeyboardInterrupt

    @file.task
    def succeeds() -> int:
        return 1

    faulty, good = await raises_keyboard_interrupt.aenqueue(), await succeeds.aenqueue()
    await run_burst(file)
    with pytest.raises(JobFailedError, match="KeyboardInterrupt"):
        await faulty.aresult(WAIT_TIMEOUT)
    assert await good.aresult(WAIT_TIMEOUT) == 1


async def test_a_step_returns_the_same_value_in_every_attempt(file: Windlass) -> None:
    seen: list[object] = []

    @file.task(backoff=fixed(0))
    def task(ctx: Context) -> None:
        seen.append(ctx.step("pair", lambda: {1: (2, 3)}))
        if ctx.attempt == 1:
            raise ValueError

    await task.aenqueue()
    await run_burst(file)
    assert seen == [{"1": [2, 3]}] * 2


async def test_a_stop_wakes_a_waiting_worker(file: Windlass) -> None:
    worker = make_worker(file, poll_interval=60.0)
    running_worker = asyncio.create_task(worker.run())
    await asyncio.sleep(0.2)
    worker.stop()
    await asyncio.wait_for(running_worker, 10)


async def test_a_worker_without_maintenance_changes_no_other_job(file: Windlass) -> None:
    @file.task
    async def slow() -> None:
        await asyncio.sleep(0.1)  # ten sweep intervals

    store = file.client().store
    await enqueue_one(store, queue="other")
    await claim_all(store, "other", lease=0.01)
    await enqueue_one(store, queue="other", delay=0.01)
    await enqueue_one(store, queue="other", expires_in=0.01)
    await asyncio.sleep(0.05)  # one lease and one job expired, one job is due
    before = (await store.find(JobQuery())).rows
    job = await slow.aenqueue()
    await run_burst(file, maintenance=False)
    after = (await store.find(JobQuery())).rows
    assert [row for row in after if row.id != job.id] == before
    assert await Sweeper(store, 1, Retention()).once() == len(before)
