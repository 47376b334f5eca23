"""Rules of the queue: delivery, order, leases and fencing, retries, durability."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from tests.specs.factories import (
    FOREVER,
    SECOND,
    WAIT_TIMEOUT,
    SpyStore,
    add_probe,
    end,
    ended,
    events_of,
    eventually,
    kill,
    pass_time,
    process,
    reach,
    retries,
    states_of,
    status,
    wait_for_event,
    working,
)

from windlass import (
    Cancel,
    ConflictError,
    Context,
    InvalidInput,
    Job,
    NotFoundError,
    Snooze,
    State,
    Windlass,
    WorkerConfig,
    exponential,
    fixed,
)
from windlass.core.clock import SystemClock
from windlass.core.errors import StoreUnavailableError
from windlass.core.event import EventType
from windlass.testing import VirtualClock

# Valid transitions, as pairs of states.
MOVES = {
    *[("created", "queued"), ("created", "canceled"), ("created", "failed")],
    *[("queued", "running"), ("queued", "canceled"), ("queued", "failed")],
    *[("running", "succeeded"), ("running", "failed"), ("running", "canceled")],
    *[("running", "retrying"), ("retrying", "queued"), ("retrying", "canceled")],
}


# -- at least once


async def test_every_accepted_job_runs(app: Windlass) -> None:
    runs: list[int] = []

    @app.task
    async def task(n: int) -> None:
        runs.append(n)

    jobs = await app.aenqueue_many([task.new_job(n) for n in range(100)])
    rows = await ended(app, *jobs)
    assert {row.state for row in rows} == {State.SUCCEEDED}
    assert sorted(runs) == list(range(100))


async def test_a_job_may_run_twice_but_ends_once(app: Windlass, clock: VirtualClock) -> None:
    """The first worker is disconnected: its lease expires, and another claims the job.

    Both finish; only the lease holder can settle.
    """
    go, done = asyncio.Event(), asyncio.Event()
    runs: list[int] = []

    @app.task
    async def task(ctx: Context) -> str:
        runs.append(ctx.fence)
        if ctx.attempt == 1:
            await go.wait()
            done.set()
        return f"by attempt {ctx.attempt}"

    job = await task.aenqueue()
    async with working(app, slots=1, sweep_interval=FOREVER) as stale:
        await reach(job, State.RUNNING)
        async with working(app):
            clock.advance(31)
            assert await job.aresult(WAIT_TIMEOUT) == "by attempt 2"
        ended_as = job.row
        go.set()
        await asyncio.wait_for(done.wait(), WAIT_TIMEOUT)
    assert (runs, dict(stale.settled)) == ([1, 2], {})
    assert (await job.arefresh()).row == ended_as


# -- durability


async def test_an_accepted_job_survives_the_process_that_enqueued_it(
    file: str, tmp_path: Path
) -> None:
    enqueue_and_hang = """
        import sys, threading
        from windlass import Windlass
        app = Windlass(sys.argv[1])
        @app.task(name="task")
        async def task() -> str: ...
        print(task.enqueue().id, flush=True)
        threading.Event().wait()
    """
    with process(enqueue_and_hang, file) as child:
        assert child.stdout is not None
        job_id = (await asyncio.to_thread(child.stdout.readline)).strip()
        kill(child)
    app = Windlass(file)

    @app.task(name="task")
    async def task() -> str:
        return "not lost"

    job = await app.ajob(job_id)
    await end(app, job)
    assert await job.aresult() == "not lost"
    await app.aclose()


async def test_a_memory_store_ends_with_its_app() -> None:
    first, second = Windlass("memory:"), Windlass("memory:")

    @first.task
    async def task() -> None: ...

    job = await task.aenqueue()
    with pytest.raises(NotFoundError):
        await second.ajob(job.id)
    await first.aclose()
    await second.aclose()


async def test_the_job_of_a_killed_worker_is_run_by_another_after_its_lease(file: str) -> None:
    """The clock of the second worker moves only in the test, so a slow machine expires no lease."""
    work_and_hang = """
        import asyncio, sys, time
        from windlass import Windlass
        app = Windlass(sys.argv[1])
        @app.task(name="task", lease=0.5)
        async def task() -> str:
            print("begun", flush=True)
            time.sleep(3600)  # blocks the event loop; the lease is extended nevertheless
        asyncio.run(app.worker().run())
    """
    clock = VirtualClock(SystemClock().now())
    app = Windlass(file, clock=clock)
    add_probe(app)

    @app.task(name="task", lease=0.5)
    async def task(ctx: Context) -> str:
        return f"by attempt {ctx.attempt}"

    async def lease_until() -> int:
        return (await job.arefresh()).row.lease_until or 0

    async def is_not_rescued_before_lease_expiry() -> bool:
        clock.jump(await lease_until() - 10)
        await pass_time(app, clock, 0)  # by some microseconds
        return (await job.arefresh()).row.attempt == 1

    job = await task.aenqueue()
    with process(work_and_hang, file) as child:
        assert child.stdout is not None
        await asyncio.to_thread(child.stdout.readline)
        async with working(app):
            twice_longer = await lease_until() + 1 * SECOND

            async def kept() -> bool:
                return await lease_until() >= twice_longer

            await eventually(kept)
            assert await is_not_rescued_before_lease_expiry()
            kill(child)
            assert await is_not_rescued_before_lease_expiry()
            clock.jump(await lease_until())
            assert await job.aresult(WAIT_TIMEOUT) == "by attempt 2"
    assert (job.row.crash_count, job.row.retry_count) == (1, 0)
    await app.aclose()


async def test_workers_retry_during_a_store_outage_and_lose_nothing(app: Windlass) -> None:
    failures = {"claim": 3, "record": 1}

    def look(verb: str) -> None:
        if failures.get(verb, 0):
            failures[verb] -= 1
            raise StoreUnavailableError(f"{verb}: away")

    @app.task
    async def task(ctx: Context) -> int:
        async def piece() -> int:
            return ctx.attempt

        done = await ctx.astep("piece", piece)
        failures["apply"] = 2  # from now on only the settler writes
        return done

    job = await task.aenqueue()
    row = await end(
        app, job, sweep_interval=FOREVER, store=SpyStore(app.client().store.twin(), look)
    )
    assert failures == {"claim": 0, "record": 0, "apply": 0}
    assert (row.state, row.attempt, row.retry_count) == (State.SUCCEEDED, 1, 0)


# -- order and visibility


async def test_a_queue_is_first_in_first_out(app: Windlass) -> None:
    order: list[int] = []

    @app.task
    async def task(n: int) -> None:
        order.append(n)

    jobs = [await task.aenqueue(n) for n in range(20)]
    await ended(app, *jobs, slots=1)
    assert order == list(range(20))


async def test_priority_changes_the_order_within_a_queue(app: Windlass) -> None:
    order: list[int] = []

    @app.task
    async def task(n: int) -> None:
        order.append(n)

    jobs = [await task.options(priority=n % 3).aenqueue(n) for n in range(9)]
    await ended(app, *jobs, slots=1)
    assert order == [2, 5, 8, 1, 4, 7, 0, 3, 6]


async def test_a_leased_job_is_invisible_to_other_workers(
    app: Windlass, clock: VirtualClock
) -> None:
    runs: list[int] = []

    @app.task
    async def task(ctx: Context) -> None:
        runs.append(ctx.attempt)
        await asyncio.sleep(FOREVER)

    job = await task.aenqueue()
    async with working(app, slots=1):
        await reach(job, State.RUNNING)
        async with working(app):
            await pass_time(app, clock, 29)
            assert (runs, (await job.arefresh()).row.fence) == ([1], 1)


async def test_a_success_is_never_processed_again(app: Windlass, clock: VirtualClock) -> None:
    runs: list[int] = []

    @app.task
    async def task(ctx: Context) -> None:
        runs.append(ctx.attempt)

    job = await task.aenqueue()
    async with working(app), working(app):
        await job.await_end(WAIT_TIMEOUT)
        await pass_time(app, clock, FOREVER)
    assert runs == [1]


# -- states


async def test_a_job_has_one_state_and_makes_only_valid_transitions(
    app: Windlass, clock: VirtualClock
) -> None:
    @app.task(backoff=fixed(1), max_retries=1)
    async def task(ctx: Context, ends: list[str]) -> None:
        match ends[ctx.attempt - 1]:
            case "error":
                raise OSError
            case "terminal":
                raise InvalidInput
            case "snooze":
                raise Snooze(1)
            case "cancel":
                raise Cancel

    lives = [
        ["ok"],
        ["terminal"],
        ["error", "ok"],
        ["error", "error"],
        ["snooze", "snooze", "ok"],
        ["snooze", "error", "cancel"],
    ]
    jobs = [await task.aenqueue(ends) for ends in lives]
    jobs.append(await task.options(delay=2).aenqueue(["ok"]))
    jobs.append(await task.options(queue="unconsumed", expires_in=1).aenqueue(["ok"]))
    async with working(app):
        for _ in range(3):
            await pass_time(app, clock, 2)
        for job in jobs:
            await job.await_end(WAIT_TIMEOUT)
    for job in jobs:
        states = await states_of(job)
        assert states[0] == "created"
        assert set(pairwise(states)) <= MOVES, states
        assert states[-1] == job.row.state


async def test_an_enqueued_job_is_ready_to_be_claimed(app: Windlass) -> None:
    @app.task
    async def task() -> None: ...

    job = await task.aenqueue()
    assert (job.state, job.row.attempt, job.row.fence) == (State.QUEUED, 0, 0)
    await end(app, job)


async def test_an_id_is_enqueued_once(app: Windlass) -> None:
    runs: list[UUID] = []

    @app.task
    async def task(ctx: Context, n: int) -> None:
        runs.append(ctx.job.id)

    mine = task.options(id=uuid4())
    first, again = await mine.aenqueue(1), await mine.aenqueue(1)
    assert first.id == again.id
    with pytest.raises(ConflictError, match="is taken"):
        await mine.aenqueue(2)
    await ended(app, again, await task.aenqueue(3), slots=1)
    assert runs.count(first.id) == 1


async def test_a_claimed_job_is_running_with_its_own_lease(app: Windlass) -> None:
    @app.task
    async def task() -> None:
        await asyncio.sleep(FOREVER)

    rows = []
    for name in ("first", "second"):
        async with working(app, name=name):
            job = await task.aenqueue()
            rows.append(await reach(job, State.RUNNING))
            await job.acancel()
            await job.await_end(WAIT_TIMEOUT)
    assert [row.worker for row in rows] == ["first", "second"]
    assert all(row.lease_until is not None for row in rows)
    assert rows[0].lease.token != rows[1].lease.token


async def test_a_settled_job_is_complete_and_holds_no_lease(app: Windlass) -> None:
    @app.task
    async def task() -> int:
        return 7

    job = await task.aenqueue()
    row = await end(app, job)
    assert (row.state, row.lease_until, await job.aresult()) == (State.SUCCEEDED, None, 7)


# -- retries


async def test_a_failed_job_is_claimable_again_only_when_due(
    app: Windlass, clock: VirtualClock
) -> None:
    @app.task(backoff=fixed(10))
    async def task(ctx: Context) -> int:
        if ctx.attempt == 1:
            raise OSError
        return ctx.attempt

    job = await task.aenqueue()
    async with working(app):
        row = await reach(job, State.RETRYING)
        assert row.retry_count == 1
        assert row.due_at == row.updated_at + 10 * SECOND
        await pass_time(app, clock, 9.9)
        assert (await job.arefresh()).row.attempt == 1
        clock.advance(0.1)
        assert await job.aresult(WAIT_TIMEOUT) == 2


async def test_a_job_has_four_attempts_by_default_and_then_fails(
    app: Windlass, clock: VirtualClock
) -> None:
    runs: list[int] = []

    @app.task
    async def task(ctx: Context) -> None:
        runs.append(ctx.attempt)
        raise OSError

    job = await task.aenqueue()
    async with working(app):
        for attempt in (1, 2, 3):
            await reach(job, State.RETRYING, attempt)
            clock.advance(30)
        row = (await job.await_end(WAIT_TIMEOUT)).row
        await pass_time(app, clock, FOREVER)
    assert (runs, row.state, row.retry_count) == ([1, 2, 3, 4], State.FAILED, 3)


async def delays(
    app: Windlass, clock: VirtualClock, jobs: Iterable[Job[None]]
) -> list[list[float]]:
    """Return the delays before each retry of jobs that always fail."""
    jobs = list(jobs)
    async with working(app, slots=len(jobs)):
        for attempt in range(1, jobs[0].row.policy.max_retries + 1):
            for job in jobs:
                await wait_for_event(job, status(State.RETRYING, attempt))
            clock.advance(30)
        for job in jobs:
            await job.await_end(WAIT_TIMEOUT)
    return [[event.data["delay"] for event in await retries(job)] for job in jobs]


async def test_retry_delays_double_from_half_a_second_to_thirty(
    app: Windlass, clock: VirtualClock
) -> None:
    @app.task(max_retries=8, backoff=exponential(jitter="none"))
    async def task() -> None:
        raise OSError

    [waited] = await delays(app, clock, [await task.aenqueue()])
    assert waited == [0.5, 1, 2, 4, 8, 16, 30, 30]


async def test_retry_delays_have_full_jitter_by_default(app: Windlass, clock: VirtualClock) -> None:
    @app.task
    async def task() -> None:
        raise OSError

    jobs = await app.aenqueue_many([task.new_job() for _ in range(80)])
    for retry, waited in enumerate(zip(*await delays(app, clock, jobs), strict=True)):
        bound = 0.5 * 2**retry
        assert 0 <= min(waited) < bound / 4  # fails by chance once in 10^9 runs
        assert bound * 3 / 4 < max(waited) <= bound


# -- leases


async def test_a_job_is_claimable_exactly_when_its_lease_expires(
    app: Windlass, clock: VirtualClock
) -> None:
    @app.task(lease=5)
    async def task(ctx: Context) -> int:
        if ctx.attempt == 1:
            await asyncio.sleep(FOREVER)
        return ctx.fence

    job = await task.aenqueue()
    async with working(app, slots=1, sweep_interval=FOREVER):
        await reach(job, State.RUNNING)
        async with working(app):
            await pass_time(app, clock, 4.9)
            assert (await job.arefresh()).row.attempt == 1
            clock.advance(0.1)
            assert await job.aresult(WAIT_TIMEOUT) == 2  # the same job, under a new lease
    [lost] = await retries(job)
    assert lost.data["outcome"] == "crash"


async def test_every_claim_has_a_new_token_and_the_next_fence(
    app: Windlass, clock: VirtualClock
) -> None:
    leases: list[tuple[int, UUID]] = []

    @app.task(backoff=fixed(0), max_retries=3)
    async def task(ctx: Context) -> None:
        leases.append((ctx.fence, ctx.job.lease.token))
        if ctx.attempt == 1:
            raise Snooze(0)
        raise OSError

    await end(app, await task.aenqueue())
    assert [fence for fence, _ in leases] == [1, 2, 3, 4, 5]
    assert len({token for _, token in leases}) == 5


@pytest.mark.parametrize("late", ["ack", "nack", "report"])
async def test_a_stale_worker_changes_nothing_while_another_runs_the_job(
    app: Windlass, clock: VirtualClock, late: str
) -> None:
    go, message, finish = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def stale_task(ctx: Context) -> str:
        try:
            await go.wait()
            ctx.progress(99, "from beyond")
            if late == "report":
                await asyncio.sleep(1)  # stopped when its records are refused
            if late == "nack":
                raise InvalidInput("from beyond")
            return "from beyond"
        finally:
            message.set()

    @app.task
    async def task(ctx: Context) -> str:
        if ctx.attempt == 1:
            return await stale_task(ctx)
        ctx.progress(10)
        await finish.wait()
        return "from the second worker"

    job = await task.aenqueue()
    async with working(app, slots=1, sweep_interval=FOREVER) as stale:
        await reach(job, State.RUNNING)
        async with working(app):
            clock.advance(31)
            row = await reach(job, State.RUNNING, attempt=2)
            go.set()
            await asyncio.wait_for(message.wait(), WAIT_TIMEOUT)
            stale.stop()
            await pass_time(app, clock, 1)
            now = (await job.arefresh()).row
            assert (now.state, now.fence, now.lease) == (State.RUNNING, 2, row.lease)
            finish.set()
            assert await job.aresult(WAIT_TIMEOUT) == "from the second worker"
    reported = [
        event.data["progressPct"] for event in await events_of(job, EventType.STEP_PROGRESS)
    ]
    assert (reported, dict(stale.settled)) == ([10], {})


async def test_a_lease_is_thirty_seconds_unless_the_task_or_worker_sets_it(
    app: Windlass,
) -> None:
    @app.task
    async def plain() -> None:
        await asyncio.sleep(FOREVER)

    @app.task(lease="5m")
    async def long() -> None:
        await asyncio.sleep(FOREVER)

    async def length(job: Job[None], lease: float | None = None) -> float:
        async with working(app, lease=lease):
            row = await reach(job, State.RUNNING)
            await job.acancel()
            await job.await_end(WAIT_TIMEOUT)
        assert row.lease_until is not None
        assert row.started_at is not None
        return (row.lease_until - row.started_at) / SECOND

    assert WorkerConfig().lease is None
    assert await length(await plain.aenqueue()) == 30
    assert await length(await long.aenqueue()) == 300
    assert await length(await long.aenqueue(), lease=5) == 5


async def test_a_heartbeat_extends_the_lease_fully_and_stops_with_the_job(
    app: Windlass, clock: VirtualClock
) -> None:
    beats: list[int] = []
    go = asyncio.Event()

    @app.task
    async def task() -> None:
        await go.wait()

    def look(verb: str) -> None:
        if verb == "extend":
            beats.append(clock.now())

    job = await task.aenqueue()
    async with working(app, lease=0.3, store=SpyStore(app.client().store.twin(), look)):
        await reach(job, State.RUNNING)
        await eventually(lambda: len(beats) >= 2)
        at = clock.advance(0.2)

        async def lengthened() -> bool:
            return (await job.arefresh()).row.lease_until == at + round(0.3 * SECOND)

        await eventually(lengthened)
        go.set()
        await job.await_end(WAIT_TIMEOUT)
        count = len(beats)
        await asyncio.sleep(0.3)  # time for three more
        assert len(beats) <= count + 1


async def test_a_job_runs_longer_than_its_lease_and_no_longer_than_its_timeout(
    app: Windlass, clock: VirtualClock
) -> None:
    beats: list[int] = []

    def look(verb: str) -> None:
        """Let most of a lease pass before each extension."""
        if verb == "extend":
            beats.append(clock.advance(0.2))

    @app.task(lease=0.3, timeout=FOREVER)
    async def long() -> str:
        await eventually(lambda: len(beats) >= 5)
        return "finished"

    @app.task(lease=0.3, timeout=1, max_retries=0)
    async def endless() -> None:
        await asyncio.sleep(FOREVER)

    job = await long.aenqueue()
    row = await end(app, job, store=SpyStore(app.client().store.twin(), look))
    assert (row.state, row.attempt, row.crash_count) == (State.SUCCEEDED, 1, 0)
    assert await job.aresult(WAIT_TIMEOUT) == "finished"
    row = await end(app, await endless.aenqueue(), store=SpyStore(app.client().store.twin(), look))
    assert row.error is not None
    assert (row.state, row.error.code, row.crash_count) == (State.FAILED, "timeout", 0)
