"""Rules of the runner's queue: the verbs of its job store, and the stream of events."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from uuid import UUID, uuid4

import pytest
from tests.specs.factories import (
    FOREVER,
    SECOND,
    WAIT_TIMEOUT,
    SpyStore,
    end,
    ended,
    events_of,
    eventually,
    pass_time,
    reach,
    states_of,
    wait_for_event,
    working,
)

from windlass import (
    ConflictError,
    Context,
    InvalidArgumentError,
    InvalidInput,
    Job,
    NewJob,
    NotFoundError,
    State,
    Windlass,
    fixed,
)
from windlass.core.errors import StoreUnavailableError, TooLargeError
from windlass.core.event import EventType
from windlass.core.job.row import JobRow
from windlass.store import DAY, Retention
from windlass.testing import FaultyStore, VirtualClock

# -- enqueue


async def test_an_enqueued_job_is_queued_with_an_id_that_sorts_by_time(
    app: Windlass, clock: VirtualClock
) -> None:
    @app.task(queue="priority")
    async def task() -> None: ...

    jobs = [await task.aenqueue() for _ in range(3)]
    for job in jobs:
        row = (await app.ajob(job.id)).row
        assert (row.id.version, row.queue, row.state) == (7, "priority", State.QUEUED)
        assert row.created_at == clock.now()
    assert sorted(job.id for job in jobs) == [job.id for job in jobs]


async def test_a_repeated_request_returns_the_job_of_the_first(
    app: Windlass, clock: VirtualClock
) -> None:
    @app.task
    async def task(n: int) -> int:
        return n

    job = await task.options(request_id="request-1").aenqueue(1)
    created = job.row.created_at
    for _ in range(2):  # while it waits, and after its end
        clock.advance(60)
        again = await task.options(request_id="request-1").aenqueue(1)
        assert (again.id, again.row.created_at, again.duplicate) == (job.id, created, True)
        await end(app, job)
    assert (await task.options(request_id="request-1").aenqueue(1)).state is State.SUCCEEDED


async def test_the_same_request_id_with_other_arguments_is_a_conflict(app: Windlass) -> None:
    @app.task
    async def task(n: int) -> None: ...

    await task.options(request_id="request-1").aenqueue(1)
    with pytest.raises(ConflictError, match="different arguments"):
        await task.options(request_id="request-1").aenqueue(2)
    other = await task.options(request_id="request-1", owner="another owner").aenqueue(2)
    assert not other.duplicate


async def test_concurrent_repeats_of_a_request_create_one_job(app: Windlass) -> None:
    @app.task
    async def task() -> None: ...

    requested = task.options(request_id="request-1")
    jobs = await asyncio.gather(*(requested.aenqueue() for _ in range(20)))
    assert len({job.id for job in jobs}) == 1
    assert sum(not job.duplicate for job in jobs) == 1


async def test_parameters_that_are_too_large_are_refused_with_advice(app: Windlass) -> None:
    @app.task
    async def task(text: str) -> None: ...

    with pytest.raises(TooLargeError, match="object store"):
        await task.aenqueue("x" * 2**20)


async def test_a_missing_job_is_not_found(app: Windlass) -> None:
    with pytest.raises(NotFoundError, match="no job"):
        await app.ajob(uuid4())
    with pytest.raises(InvalidArgumentError, match="is not a job id"):
        await app.ajob("job-1")


# -- dequeue


async def test_a_dequeued_job_is_running_with_the_requested_lease(
    app: Windlass,
) -> None:
    @app.task
    async def task() -> None:
        await asyncio.sleep(FOREVER)

    job = await task.aenqueue()
    async with working(app, lease=300):
        row = await reach(job, State.RUNNING)
    assert row.lease_until == (row.started_at or 0) + 300 * SECOND


async def test_a_worker_claims_no_more_jobs_than_its_slots(
    app: Windlass, clock: VirtualClock
) -> None:
    go = asyncio.Event()

    @app.task
    async def task() -> None:
        await go.wait()

    jobs = await app.aenqueue_many([task.new_job() for _ in range(5)])
    async with working(app, slots=2):
        for job in jobs[:2]:
            await reach(job, State.RUNNING)
        await pass_time(app, clock, 1)
        states = [(await job.arefresh()).state for job in jobs]
        assert states == [State.RUNNING] * 2 + [State.QUEUED] * 3
        go.set()
        for job in jobs:
            await job.await_end(WAIT_TIMEOUT)


async def test_an_unreadable_job_does_not_stop_later_jobs(app: Windlass) -> None:
    @app.task
    async def task(n: int) -> int:
        return n

    poison = NewJob(id=uuid4(), task=task.name, payload=b"\xff not even JSON")
    bad, good = await app.aenqueue_many([poison, task.new_job(1)])
    await end(app, good, slots=1)
    assert await good.aresult() == 1
    assert (await bad.arefresh()).row.error is not None


async def test_a_job_with_an_unknown_task_waits_for_another_worker(
    app: Windlass, clock: VirtualClock
) -> None:
    [job] = await app.aenqueue_many([NewJob(id=uuid4(), task="of a newer release", payload=b"{}")])
    async with working(app):
        row = await reach(job, State.RETRYING)
        assert (row.retry_count, row.crash_count) == (0, 0)

        @app.task(name="of a newer release")
        async def task() -> str:
            return "known now"

        clock.advance(60)
        assert await job.aresult(WAIT_TIMEOUT) == "known now"
    [warning] = await events_of(job, EventType.WARNING)
    assert "is not registered in this worker" in warning.data["message"]


# -- the lease


@asynccontextmanager
async def run_twice(app: Windlass, clock: VirtualClock) -> AsyncIterator[Job[str]]:
    """A job with an expired lease that two workers run: the first is stale."""
    finish = threading.Event()

    @app.task(name="taken over")
    def task(ctx: Context) -> str:
        if ctx.attempt == 1:
            assert finish.wait(WAIT_TIMEOUT)
        return f"by attempt {ctx.attempt}"

    job = await task.aenqueue()
    async with working(app, slots=1, sweep_interval=FOREVER):
        await reach(job, State.RUNNING)
        async with working(app):
            clock.advance(31)
            await job.await_end(WAIT_TIMEOUT)
            try:
                yield job
            finally:
                finish.set()


async def test_a_job_with_an_expired_lease_is_delivered_again(
    app: Windlass, clock: VirtualClock
) -> None:
    async with run_twice(app, clock) as job:
        assert await job.aresult() == "by attempt 2"
    assert await states_of(job) == [
        *["created", "queued", "running", "retrying"],
        *["queued", "running", "succeeded"],
    ]


async def test_a_completed_job_is_not_requeued_by_an_expired_lease(
    app: Windlass, clock: VirtualClock
) -> None:
    async with run_twice(app, clock) as job:
        done = job.row
        await pass_time(app, clock, 60)
    async with working(app):
        await pass_time(app, clock, 60)
    assert (await job.arefresh()).row == done


async def test_only_one_worker_runs_a_job_at_a_time(app: Windlass) -> None:
    now: dict[UUID, int] = {}
    most = 0

    @app.task(max_retries=2, backoff=fixed(0))
    async def task(ctx: Context) -> None:
        nonlocal most
        now[ctx.job.id] = now.get(ctx.job.id, 0) + 1
        most = max(most, now[ctx.job.id])
        await asyncio.sleep(0.001)
        now[ctx.job.id] -= 1
        if ctx.attempt < 3:
            raise OSError

    jobs = await app.aenqueue_many([task.new_job() for _ in range(10)])
    async with working(app), working(app), working(app):
        for job in jobs:
            assert (await job.await_end(WAIT_TIMEOUT)).state is State.SUCCEEDED
    assert most == 1


async def test_a_lease_is_extended_while_its_job_runs(app: Windlass, clock: VirtualClock) -> None:
    @app.task
    async def task() -> None:
        await asyncio.sleep(FOREVER)

    job = await task.aenqueue()
    async with working(app, lease=0.3):
        first = (await reach(job, State.RUNNING)).lease_until or 0
        at = clock.advance(0.25)

        async def longer() -> bool:
            return ((await job.arefresh()).row.lease_until or 0) > first

        await eventually(longer)
        assert job.row.lease_until == at + round(0.3 * SECOND)


# -- complete


async def completed(app: Windlass, how: State) -> JobRow:
    @app.task(name=f"ends {how}", max_retries=0)
    async def task() -> dict[str, int]:
        if how is State.FAILED:
            raise OSError("exit code 1")
        if how is State.CANCELED:
            await asyncio.sleep(FOREVER)
        return {"exitCode": 0}

    job = await task.aenqueue()
    async with working(app):
        if how is State.CANCELED:
            await reach(job, State.RUNNING)
            await job.acancel()
        return (await job.await_end(WAIT_TIMEOUT)).row


@pytest.mark.parametrize("how", [State.SUCCEEDED, State.FAILED, State.CANCELED])
async def test_completing_a_job_sets_its_state_and_its_result_at_once(
    app: Windlass, how: State
) -> None:
    row = await completed(app, how)
    assert row.state is how
    assert (row.result is not None) is (how is State.SUCCEEDED)
    assert (row.error is not None) is (how is State.FAILED)
    assert row.updated_at == row.ended_at


async def test_a_completion_with_a_lost_response_is_repeated_and_counts_once(
    app: Windlass,
) -> None:
    runs: list[int] = []

    @app.task(max_retries=0)
    async def task(ctx: Context, n: int) -> int:
        runs.append(n)
        ctx.log(f"job {n}")
        return n

    jobs = await app.aenqueue_many([task.new_job(n) for n in range(12)])
    bad = FaultyStore(
        app.client().store.twin(), Random(5).random, lose=0.2, repeat=0.3, raise_lost=True
    )
    rows = await ended(app, *jobs, store=bad)
    assert {(row.state, row.attempt) for row in rows} == {(State.SUCCEEDED, 1)}
    assert sorted(runs) == list(range(12))
    for n, job in enumerate(jobs):  # and repeated records are not stored twice
        message = [event.data["message"] for event in await events_of(job, EventType.LOG)]
        assert message == [f"job {n}"]


# -- events


async def job_with_logs(app: Windlass, lines: int = 5) -> Job[None]:
    @app.task(name=f"says {lines} lines")
    async def task(ctx: Context) -> None:
        for n in range(lines):
            ctx.emit("output", {"stream": "stdout", "text": f"line {n}", "offset": n})

    job = await task.aenqueue()
    await end(app, job)
    return job


async def test_events_of_each_job_are_numbered_from_one_without_gaps(app: Windlass) -> None:
    jobs = {lines: await job_with_logs(app, lines) for lines in (3, 1, 7)}
    for lines, job in jobs.items():  # created, queued, running, the lines, completed
        numbers = [event.seq for event in await events_of(job)]
        assert numbers == list(range(1, 4 + lines + 1))


async def test_events_keep_the_order_of_their_records(app: Windlass) -> None:
    job = await job_with_logs(app, 40)
    reported = [event.data["text"] for event in await events_of(job, EventType.OUTPUT)]
    assert reported == [f"line {n}" for n in range(40)]


async def test_an_event_has_the_instant_of_the_store(app: Windlass, clock: VirtualClock) -> None:
    @app.task
    async def task(ctx: Context) -> None:
        clock.advance(60)
        ctx.log("a minute later")

    job = await task.aenqueue()
    await end(app, job)
    [message] = await events_of(job, EventType.LOG)
    assert message.at == job.row.created_at + 60 * SECOND


async def test_a_stream_replays_events_and_continues_live(app: Windlass) -> None:
    go = asyncio.Event()

    @app.task
    async def task(ctx: Context) -> None:
        async def first() -> None:
            ctx.log("before")

        await ctx.astep("first", first)
        await go.wait()
        ctx.log("after")

    job = await task.aenqueue()
    async with working(app), asyncio.timeout(WAIT_TIMEOUT):
        await wait_for_event(job, lambda event: event.type is EventType.STEP_STATUS)
        reported = []
        async for event in job.aevents():  # starts after the first events
            reported.append(event)
            if event.type is EventType.STEP_STATUS:
                go.set()
    assert [event.seq for event in reported] == list(range(1, len(reported) + 1))
    message = [event.data["message"] for event in reported if event.type is EventType.LOG]
    assert message == ["before", "after"]


async def test_a_stream_after_a_number_starts_with_the_next_event(app: Windlass) -> None:
    job = await job_with_logs(app)
    everything = await events_of(job)
    late = [event async for event in job.aevents(after=4)]
    assert [event.seq for event in late] == [event.seq for event in everything if event.seq > 4]


async def test_two_readers_get_the_same_events(app: Windlass) -> None:
    @app.task
    async def task(ctx: Context) -> None:
        ctx.log("for both")

    job = await task.aenqueue()
    readers = [asyncio.create_task(events_of(job)) for _ in range(2)]
    await end(app, job)
    first, second = await asyncio.gather(*readers)
    assert first == second
    assert EventType.LOG in {event.type for event in first}


async def test_old_events_are_pruned_and_readers_get_a_snapshot(
    app: Windlass, clock: VirtualClock
) -> None:
    @app.task
    async def waiting() -> None: ...

    old, active = await job_with_logs(app), await waiting.options(hold=True).aenqueue()
    for_good = Retention(log=0)
    a_week = Retention(log=7 * DAY)
    clock.advance(8 * DAY)
    async with working(app, retention=for_good):
        await pass_time(app, clock, 0)
    assert len(await events_of(old, EventType.OUTPUT)) == 5
    async with working(app, retention=a_week):
        await eventually(lambda: pruned(old))
    resync, *rest = await events_of(old)
    assert (resync.type, resync.data["state"]) == (EventType.RESYNC, State.SUCCEEDED)
    assert not [event for event in rest if event.type is EventType.OUTPUT]
    assert (await active.arefresh()).row.log_floor == 0


async def pruned(job: Job[None]) -> bool:
    return (await job.arefresh()).row.log_floor > 0


# -- which events matter


class RecordRefusal:
    """A store that refuses the records of running tasks."""

    def __call__(self, verb: str) -> None:
        if verb == "record":
            raise StoreUnavailableError("throttled")


async def test_output_that_cannot_be_stored_does_not_fail_the_job(app: Windlass) -> None:
    @app.task(max_retries=0)
    async def task(ctx: Context) -> str:
        ctx.emit("output", {"stream": "stdout", "text": "hello", "offset": 0})
        ctx.progress(50)
        await asyncio.sleep(0.6)  # longer than the write interval of records
        return "done all the same"

    job = await task.aenqueue()
    await end(app, job, store=SpyStore(app.client().store.twin(), RecordRefusal()))
    assert await job.aresult() == "done all the same"


async def test_an_event_during_error_handling_never_hides_the_error(
    app: Windlass,
) -> None:
    @app.task(max_retries=0)
    async def task(ctx: Context) -> None:
        try:
            raise InvalidInput("the real one")
        finally:
            ctx.emit("process-error", {"message": "exit code 1"})

    job = await task.aenqueue()
    await end(app, job, store=SpyStore(app.client().store.twin(), RecordRefusal()))
    [last] = await events_of(job, EventType.JOB_FAILED)
    assert last.data["errorMessage"] == "the real one"


async def test_throttled_workers_retry_and_lose_no_attempt(app: Windlass) -> None:
    left = {"claim": 2}

    def throttle(verb: str) -> None:
        if left.get(verb, 0):
            left[verb] -= 1
            raise StoreUnavailableError("throttled")

    @app.task(max_retries=0)
    async def task() -> int:
        left["apply"] = 2  # from now on only the settler writes
        return 1

    job = await task.aenqueue()
    await end(app, job, sweep_interval=FOREVER, store=SpyStore(app.client().store.twin(), throttle))
    assert (await job.aresult(), job.row.attempt, left) == (1, 1, {"claim": 0, "apply": 0})
