"""A worker from its first claim to its stop, on a good store and on a bad one."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from tests.worker.factories import (
    PATIENCE,
    Spy,
    make_worker,
    running,
    until,
    work_off,
    working,
)

from windlass import Context, Job, JobFailedError, Windlass, fixed
from windlass.core.errors import StoreUnavailableError
from windlass.core.event import EventType
from windlass.core.job.state import State, Trigger
from windlass.testing.clock import VirtualClock
from windlass.testing.faulty_store import FaultyStore

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
    found = await job._app.client().store.attempts(job.id)
    assert found is not None
    return [attempt.outcome for attempt in found]


# -- slots and queues


async def test_no_more_jobs_run_at_once_than_there_are_slots(file: Windlass) -> None:
    now, most = 0, 0

    @file.task
    async def task() -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.01)
        now -= 1

    await file.aenqueue_many([task.new_job() for _ in range(20)])
    worker = await work_off(file, queues={"default": 3})
    assert most == 3
    assert worker.settled == {State.SUCCEEDED: 20}


async def test_a_queue_that_is_full_does_not_hold_up_another(app: Windlass) -> None:
    @app.task(queue="slow")
    async def slow() -> None:
        await asyncio.sleep(FOREVER)

    @app.task(queue="quick")
    async def quick() -> int:
        return 1

    stuck = [await slow.aenqueue() for _ in range(2)]
    async with working(app, queues={"slow": 1, "quick": 1}, grace=0.01):
        await until(stuck[0], running)
        assert await (await quick.aenqueue()).aresult(PATIENCE) == 1
        assert (await stuck[1].arefresh()).state is State.QUEUED


async def test_the_highest_priority_runs_first(app: Windlass) -> None:
    order: list[int] = []

    @app.task
    async def task(n: int) -> None:
        order.append(n)

    for n in (1, 3, 2):
        await task.options(priority=n).aenqueue(n)
    await work_off(app, queues={"default": 1})
    assert order == [3, 2, 1]


async def test_a_waiting_worker_starts_a_new_job_without_polling(file: Windlass) -> None:
    @file.task
    async def task() -> int:
        return 1

    async with working(file, poll_interval=PATIENCE) as worker:
        for _ in range(3):
            job = await task.aenqueue()
            assert await job.aresult(PATIENCE / 2) == 1
        worker.stop()
        await task.aenqueue()  # wakes it, so that it sees the stop


# -- bursts


async def test_a_burst_ends_when_nothing_is_left_to_do(app: Windlass) -> None:
    @app.task(backoff=fixed(0.01))
    async def second_time_lucky(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise ValueError

    jobs = [
        await second_time_lucky.aenqueue(),
        await second_time_lucky.options(delay=0.02).aenqueue(),
    ]
    worker = await work_off(app)
    assert worker.settled == {State.RETRYING: 2, State.SUCCEEDED: 2}
    assert {(await job.arefresh()).state for job in jobs} == {State.SUCCEEDED}


async def test_a_burst_does_not_wait_for_jobs_that_only_others_can_start(app: Windlass) -> None:
    @app.task(queue="paused")
    async def task() -> None: ...

    await app.client().store.pause(["paused"], paused=True)
    waiting = [
        await task.aenqueue(),
        await task.options(queue="default", hold=True).aenqueue(),
        await task.options(queue="of-others").aenqueue(),
    ]
    worker = await work_off(app, queues={"default": 1, "paused": 1})
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
    async with working(app, cancel_poll_interval=0.01):
        await until(job, running)
        assert await job.acancel("enough") is State.RUNNING
        await job.await_end(PATIENCE)
    assert cleaned.is_set()
    assert (job.state, job.row.cancel_reason) == (State.CANCELED, "enough")


async def test_a_running_thread_ends_canceled_when_it_returns(app: Windlass) -> None:
    @app.task
    def cooperative(ctx: Context) -> str:
        return "noticed" if ctx.cancel_flag.wait(PATIENCE) and ctx.cancelled else "missed"

    job = await cooperative.aenqueue()
    async with working(app, cancel_poll_interval=0.01):
        await until(job, running)
        await job.acancel()
        await job.await_end(PATIENCE)
    assert (job.state, job.row.result) == (State.CANCELED, None)


async def test_an_accepted_cancel_wins_over_a_success(app: Windlass) -> None:
    go = asyncio.Event()

    @app.task
    async def finishes() -> str:
        await go.wait()
        return "done"

    job = await finishes.aenqueue()
    async with working(app) as worker:
        await until(job, running)
        await job.acancel()
        go.set()
        await job.await_end(PATIENCE)
    assert job.state is State.CANCELED
    assert worker.settled == {State.CANCELED: 1}


# -- lost leases


def cut_off(app: Windlass, until: threading.Event) -> Spy:
    """A store that extends no lease until then: it runs out, however late the sweep comes."""

    def look(verb: str) -> None:
        if verb == "extend" and not until.is_set():
            raise StoreUnavailableError("away")

    return Spy(app.client().store.twin(), look)


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
    async with working(timed, cut_off(timed, lost), lease=0.3):
        await until(job, running)
        clock.advance(60)  # as if this machine had been asleep
        assert await job.aresult(PATIENCE) == "by attempt 2"
        await asyncio.wait_for(stopped.wait(), PATIENCE)  # long before the worker stops
    assert (job.row.attempt, job.row.crash_count) == (2, 1)
    assert any("lease expired; result discarded" in line for line in caplog.messages)


async def test_a_thread_that_lost_its_job_does_not_disturb_the_next_attempt(
    timed: Windlass, clock: VirtualClock
) -> None:
    """Both are in one worker: the thread cannot be stopped, and the job is claimed again."""
    go, second = threading.Event(), threading.Event()

    @timed.task
    def task(ctx: Context) -> str:
        if ctx.attempt == 1:
            assert go.wait(PATIENCE)
            return "stale"
        second.set()
        assert go.wait(PATIENCE)
        return "the real one"

    @timed.task
    async def after() -> int:
        return 1

    job = await task.aenqueue()
    async with working(timed, cut_off(timed, second), lease=0.3, queues={"default": 2}) as worker:
        await until(job, running)
        clock.advance(60)
        assert await asyncio.to_thread(second.wait, PATIENCE)
        go.set()
        assert await job.aresult(PATIENCE) == "the real one"
        assert await (await after.aenqueue()).aresult(PATIENCE) == 1
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
    async with working(app, queues={"default": 1}, grace=PATIENCE) as worker:
        await asyncio.wait_for(started.wait(), PATIENCE)
        worker.stop()
        go.set()
    assert await first.aresult(PATIENCE) == "finished"
    assert (await second.arefresh()).state is State.QUEUED


async def test_after_the_grace_the_rest_is_released_uncounted(file: Windlass) -> None:
    @file.task
    async def stubborn(ctx: Context) -> int:
        if ctx.attempt == 1:
            ctx.progress(30)
            await asyncio.sleep(FOREVER)
        return ctx.attempt

    @file.task
    def run_on_thread(ctx: Context) -> int:
        if ctx.attempt == 1:
            ctx.cancel_flag.wait(PATIENCE)
        return ctx.attempt

    jobs: list[Job[int]] = [await stubborn.aenqueue(), await run_on_thread.aenqueue()]
    async with working(file, grace=0.05):
        for job in jobs:
            await until(job, running)
    for job in jobs:
        row = (await job.arefresh()).row
        assert (row.state, row.attempt) == (State.QUEUED, 1)
        assert (row.retry_count, row.crash_count) == (0, 0)
    await work_off(file)
    for job in jobs:
        assert await job.aresult(PATIENCE) == 2
        assert await attempts_of(job) == [Trigger.RELEASE, Trigger.SUCCEED]


async def test_a_worker_that_is_cancelled_itself_releases_what_it_runs(file: Windlass) -> None:
    """As Ctrl-C does: nothing may run on without anybody to keep its lease."""
    ended = asyncio.Event()

    @file.task
    async def task() -> None:
        try:
            await asyncio.sleep(FOREVER)
        finally:
            ended.set()

    job = await task.aenqueue()
    run = asyncio.create_task(make_worker(file).run())
    await until(job, running)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(run, PATIENCE)
    assert ended.is_set()
    assert (await job.arefresh()).state is State.QUEUED
    assert await attempts_of(job) == [Trigger.RELEASE]


async def test_a_worker_leaves_no_thread_behind(file: Windlass) -> None:
    @file.task
    def task() -> None: ...

    await task.aenqueue()
    await work_off(file)
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
    bad = FaultyStore(
        app.client().store.twin(), Random(11).random, lose=0.2, repeat=0.2, delay=True,
        raise_lost=True,
    )  # fmt: skip
    worker = await work_off(app, bad, lease=PATIENCE)
    assert [await job.aresult(PATIENCE) for job in jobs] == list(range(12))
    assert sorted(runs) == list(range(12))
    assert {job.row.attempt for job in jobs} == {1}
    assert worker.settled == {State.SUCCEEDED: 12}


class Breaks:
    """Raises at the first calls of some verbs: before the call, or once it was carried out."""

    def __init__(self, **times: int) -> None:
        self.left = times

    def __call__(self, verb: str) -> None:
        if self.left.get(verb, 0) > 0:
            self.left[verb] -= 1
            raise StoreUnavailableError(f"{verb}: away")


@pytest.mark.parametrize("verb", ["claim", "apply", "wait", "stats", "due", "expired", "prune"])
async def test_no_verb_that_fails_for_a_while_ends_the_worker(
    app: Windlass, verb: str, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task
    async def task() -> int:
        await asyncio.sleep(0.02)
        return 1

    job = await task.aenqueue()
    breaks = Breaks(**{verb: 2})
    spy = Spy(app.client().store.twin(), breaks)
    async with working(app, spy):
        assert await job.aresult(PATIENCE) == 1
    await work_off(app, Spy(app.client().store.twin(), Breaks(stats=1)))
    assert job.row.attempt == 1
    if verb in {"claim", "apply"}:
        assert breaks.left[verb] == 0
        assert any("retrying" in line for line in caplog.messages)


async def test_a_settle_whose_answer_was_lost_is_repeated_and_counts_once(app: Windlass) -> None:
    settles = 0

    class Forgetful(Spy):
        async def apply(self, transitions: Any) -> Any:
            nonlocal settles
            answers = await self.store.apply(transitions)
            if any(transition.trigger is Trigger.SUCCEED for transition in transitions):
                settles += 1
                if settles == 1:
                    raise StoreUnavailableError("the answer was lost")
            return answers

    @app.task
    async def task(ctx: Context) -> int:
        ctx.log("logged once")
        return ctx.attempt

    job = await task.aenqueue()
    worker = await work_off(app, Forgetful(app.client().store.twin(), lambda _: None))
    assert await job.aresult(PATIENCE) == 1
    assert settles == 2
    assert worker.settled == {State.SUCCEEDED: 1}
    kinds = [event.type async for event in job.aevents()]
    assert kinds.count(EventType.LOG) == kinds.count(EventType.JOB_COMPLETED) == 1


async def test_a_claim_whose_answer_was_lost_loses_no_job(app: Windlass) -> None:
    claims: list[Any] = []

    class Forgetful(Spy):
        async def claim(self, claim: Any) -> Any:
            claims.append(claim.token)
            jobs = await self.store.claim(claim)
            if len(claims) == 1:
                raise StoreUnavailableError("the answer was lost")
            return jobs

    @app.task
    async def task() -> int:
        return 1

    jobs = await app.aenqueue_many([task.new_job() for _ in range(3)])
    await work_off(app, Forgetful(app.client().store.twin(), lambda _: None), lease=PATIENCE)
    assert [await job.aresult(PATIENCE) for job in jobs] == [1, 1, 1]
    assert {job.row.attempt for job in jobs} == {1}
    assert claims[0] == claims[1] != claims[2]


async def test_events_during_a_store_outage_are_stored_with_the_settle(app: Windlass) -> None:
    breaks = Breaks(record=1)
    tried = asyncio.Event()

    def look(verb: str) -> None:
        if verb == "record":
            tried.set()
        breaks(verb)

    @app.task
    async def task(ctx: Context) -> None:
        ctx.log("one")
        await tried.wait()
        ctx.log("two")

    job = await task.aenqueue()
    await work_off(app, Spy(app.client().store.twin(), look))
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
    workers = await asyncio.gather(work_off(file), work_off(file))
    assert sorted(runs) == list(range(200))
    assert sum(worker.settled[State.SUCCEEDED] for worker in workers) == 200


# -- what must not take the worker, or its neighbours, along


async def test_a_sync_call_on_the_workers_loop_is_refused_and_not_waited_for(
    file: Windlass,
) -> None:
    @file.task
    async def child() -> int:
        return 5

    @file.task(max_retries=0)
    async def careless() -> int:
        return child.enqueue().result()

    job = await careless.aenqueue()
    await work_off(file)
    with pytest.raises(JobFailedError, match="await the async method"):
        await job.aresult(PATIENCE)


async def test_what_a_task_makes_of_being_released_is_not_its_failure(file: Windlass) -> None:
    @file.task(max_retries=0)
    async def touchy(ctx: Context) -> int:
        if ctx.attempt == 1:
            try:
                await asyncio.sleep(FOREVER)
            except asyncio.CancelledError:
                raise RuntimeError("not cancelled") from None
        return ctx.attempt

    job = await touchy.aenqueue()
    async with working(file, grace=0.05):
        await until(job, running)
    assert await attempts_of(job) == [Trigger.RELEASE]
    await work_off(file)
    assert await job.aresult(PATIENCE) == 2


async def test_a_thread_that_raises_keyboard_interrupt_fails_alone(file: Windlass) -> None:
    @file.task(max_retries=0)
    def rude() -> None:
        raise KeyboardInterrupt

    @file.task
    def innocent() -> int:
        return 1

    bad, good = await rude.aenqueue(), await innocent.aenqueue()
    await work_off(file)
    with pytest.raises(JobFailedError, match="KeyboardInterrupt"):
        await bad.aresult(PATIENCE)
    assert await good.aresult(PATIENCE) == 1


async def test_a_step_gives_the_first_attempt_what_it_gives_the_next(file: Windlass) -> None:
    seen: list[object] = []

    @file.task(backoff=fixed(0))
    def task(ctx: Context) -> None:
        seen.append(ctx.step("pair", lambda: {1: (2, 3)}))
        if ctx.attempt == 1:
            raise ValueError

    await task.aenqueue()
    await work_off(file)
    assert seen == [{"1": [2, 3]}] * 2


async def test_a_stop_wakes_a_worker_that_waits(file: Windlass) -> None:
    worker = make_worker(file, poll_interval=60.0)
    running_worker = asyncio.create_task(worker.run())
    await asyncio.sleep(0.2)
    worker.stop()
    await asyncio.wait_for(running_worker, 10)
