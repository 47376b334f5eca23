"""The fetcher claims as many jobs as it has slots, and prefetches only quick jobs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

import pytest
from tests.worker.event_waits import WAIT_TIMEOUT, eventually, is_running, wait_for_event
from tests.worker.spy_store import SpyStore
from tests.worker.workers import config, make_worker, run_burst, running_worker

from windlass import Context, Job, Windlass
from windlass.core.errors import StoreUnavailableError
from windlass.core.ids import uuid7
from windlass.core.job.lease import Claim
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.store import Store
from windlass.task_spec import Registry
from windlass.testing.factories import make_job
from windlass.worker import slots as worker_slots
from windlass.worker.config import WorkerConfig
from windlass.worker.execution.attempt_runner import AttemptRunner
from windlass.worker.loops.fetcher import Fetcher
from windlass.worker.loops.keeper import Keeper
from windlass.worker.running_attempts import RunningAttempt, RunningAttempts

T = TypeVar("T")
HOUR = 3600.0


@pytest.fixture
async def app() -> AsyncIterator[Windlass]:
    app = Windlass("memory:")
    yield app
    await app.aclose()


async def states(jobs: list[Job[None]]) -> list[State]:
    return [(await job.arefresh()).state for job in jobs]


async def calls_of(app: Windlass, verb: str, number: int) -> int:
    """Run quick jobs on ten slots; return how often the worker called this verb of the store."""

    @app.task(name="quick")
    async def quick() -> None: ...

    await app.aenqueue_many([quick.new_job() for _ in range(number)])
    count = 0

    def on_call(called: str) -> None:
        nonlocal count
        count += called == verb

    await run_burst(app, SpyStore(app.client().store.twin(), on_call), queues={"default": 10})
    return count


class EndingRunner(AttemptRunner):
    """Ends each attempt at its first step, and settles nothing."""

    def __init__(
        self, attempts: RunningAttempts, on_end: Callable[[RunningAttempt], object]
    ) -> None:
        self._attempts = attempts
        self._on_end = on_end

    async def run(self, attempt: RunningAttempt) -> None:
        self._on_end(attempt)
        self._attempts.forget([attempt])


@asynccontextmanager
async def fetcher_that_ends_jobs(
    store: Store, settings: WorkerConfig, on_end: Callable[[RunningAttempt], object]
) -> AsyncIterator[Fetcher]:
    attempts = RunningAttempts(store)
    attempts.keeper = Keeper(store.twin(), on_lost=print, on_cancel=print)
    attempts.keeper.start()
    slots = worker_slots.WorkerSlots(EndingRunner(attempts, on_end), Registry(), settings)
    yield Fetcher(store, settings, slots=slots, attempts=attempts, tasks=Registry())
    await attempts.keeper.stop()


async def test_quick_jobs_are_claimed_in_large_batches(app: Windlass) -> None:
    assert await calls_of(app, "claim", 1000) < 1000 / 10 / 2


async def test_jobs_that_end_together_are_settled_in_one_write(app: Windlass) -> None:
    assert await calls_of(app, "apply", 1000) < 1000 / 10


async def test_slow_jobs_are_not_claimed_before_a_slot_is_free(
    app: Windlass,
) -> None:
    go = asyncio.Event()

    @app.task
    async def slow() -> None:
        await go.wait()

    jobs = [await slow.aenqueue() for _ in range(6)]
    async with running_worker(app, queues={"default": 2}):
        await wait_for_event(jobs[1], is_running)
        assert await states(jobs) == [State.RUNNING] * 2 + [State.QUEUED] * 4
        go.set()
        for job in jobs:
            await job.await_end(WAIT_TIMEOUT)


async def test_jobs_prefetched_behind_slow_jobs_are_released_uncounted(
    app: Windlass, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_slots, "MAX_PREFETCH_WAIT", 0.1)
    monkeypatch.setattr(worker_slots, "PREFETCH_SECONDS", 1000.0)  # claim all on any machine
    go = asyncio.Event()

    @app.task
    async def task(slow: bool) -> None:
        if slow:
            await go.wait()

    await app.aenqueue_many([task.new_job(slow=False) for _ in range(500)])
    jobs = await app.aenqueue_many([task.new_job(slow=True) for _ in range(20)])

    async def released() -> bool:
        now = await states(jobs)
        return (now.count(State.RUNNING), now.count(State.QUEUED)) == (2, 18)

    async with running_worker(app, queues={"default": 2}):
        await eventually(released)
        assert max(job.row.attempt for job in jobs if job.state is State.QUEUED) >= 1
        assert {(job.row.retry_count, job.row.crash_count) for job in jobs} == {(0, 0)}
        go.set()
        for job in jobs:
            assert (await job.await_end(WAIT_TIMEOUT)).state is State.SUCCEEDED


async def test_a_stop_releases_claimed_jobs_that_never_started(
    app: Windlass, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_slots, "MAX_PREFETCH_WAIT", HOUR)
    monkeypatch.setattr(worker_slots, "PREFETCH_SECONDS", 1000.0)
    started = asyncio.Event()
    ran = 0

    @app.task
    async def task(slow: bool) -> None:
        nonlocal ran
        if slow:
            ran += 1
            started.set()
            await asyncio.Event().wait()

    await app.aenqueue_many([task.new_job(slow=False) for _ in range(500)])
    jobs = await app.aenqueue_many([task.new_job(slow=True) for _ in range(20)])
    worker = make_worker(app, queues={"default": 1}, grace=0.0)
    working = asyncio.create_task(worker.run())
    await asyncio.wait_for(started.wait(), WAIT_TIMEOUT)
    worker.stop()
    await asyncio.wait_for(working, WAIT_TIMEOUT)
    assert ran == 1
    assert await states(jobs) == [State.QUEUED] * 20
    assert max(job.row.attempt for job in jobs[1:]) == 1  # they were claimed
    assert {(job.row.retry_count, job.row.crash_count) for job in jobs} == {(0, 0)}


async def test_a_job_canceled_while_it_waits_for_a_slot_never_starts(
    app: Windlass, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_slots, "MAX_PREFETCH_WAIT", HOUR)
    monkeypatch.setattr(worker_slots, "PREFETCH_SECONDS", 1000.0)  # claim all on any machine
    go = asyncio.Event()
    ran: list[int] = []

    @app.task
    async def task(ctx: Context, number: int, slow: bool) -> None:
        ran.append(number)
        if slow:
            await go.wait()

    await app.aenqueue_many([task.new_job(0, slow=False) for _ in range(50)])
    jobs = await app.aenqueue_many([task.new_job(n, slow=True) for n in range(1, 5)])
    reads = 0

    def on_call(verb: str) -> None:
        nonlocal reads
        reads += verb == "get"

    async def claimed() -> bool:
        return await states(jobs) == [State.RUNNING] * 4

    async def polled_again() -> bool:
        return reads > reads_before + 1  # the first read may have started before the cancel

    store = SpyStore(app.client().store.twin(), on_call)
    async with running_worker(app, store, queues={"default": 1}, cancel_poll_interval=0.01):
        await eventually(claimed)
        assert await jobs[2].acancel() is State.RUNNING
        reads_before = reads
        await eventually(polled_again)
        go.set()
        ended = [(await job.await_end(WAIT_TIMEOUT)).state for job in jobs]
    assert ended == [State.SUCCEEDED, State.SUCCEEDED, State.CANCELED, State.SUCCEEDED]
    assert 3 not in ran


async def test_a_full_queue_continues_when_a_slot_is_free_while_another_queue_is_idle(
    app: Windlass,
) -> None:
    @app.task(queue="busy")
    async def task() -> None: ...

    jobs = [await task.aenqueue() for _ in range(3)]
    async with running_worker(app, queues={"busy": 1, "idle": 1}, poll_interval=HOUR):
        for job in jobs:
            assert (await job.await_end(WAIT_TIMEOUT)).state is State.SUCCEEDED


async def test_a_claim_whose_response_was_lost_is_repeated_with_its_token(app: Windlass) -> None:
    @app.task
    async def task() -> None: ...

    job = await task.aenqueue()
    store = app.client().store.twin()
    to_lose = 1

    class LostResponse(SpyStore):
        async def around(self, verb: str, call: Callable[[], Awaitable[T]]) -> T:
            nonlocal to_lose
            result = await call()
            if verb == "claim" and result and to_lose:
                to_lose -= 1
                raise StoreUnavailableError("the response was lost")
            return result

    async with running_worker(app, LostResponse(store)):
        row = (await job.await_end(WAIT_TIMEOUT)).row
    assert (row.state, row.attempt, to_lose) == (State.SUCCEEDED, 1, 0)


@pytest.mark.parametrize("cancelled", [False, True], ids=["stopped", "cancelled"])
@pytest.mark.parametrize("executed", [True, False], ids=["executed", "never-arrived"])
async def test_a_stop_releases_the_jobs_of_a_claim_without_response(
    app: Windlass, executed: bool, cancelled: bool
) -> None:
    """The worker is stopped or cancelled before it can repeat the claim."""

    @app.task
    async def task() -> None: ...

    job = await task.aenqueue()
    claims = 0

    class UnansweredClaims(SpyStore):
        async def around(self, verb: str, call: Callable[[], Awaitable[T]]) -> T:
            nonlocal claims
            if verb != "claim":
                return await call()
            claims += 1
            if claims > 2:
                return await call()
            if executed:
                await call()
            if claims == 1:
                running.cancel() if cancelled else worker.stop()
            raise StoreUnavailableError("no response")

    worker = make_worker(app, UnansweredClaims(app.client().store.twin()))
    running = asyncio.create_task(worker.run())
    await asyncio.wait({running}, timeout=WAIT_TIMEOUT)
    assert running.cancelled() is cancelled
    assert (await job.arefresh()).state is State.QUEUED
    assert (job.row.retry_count, job.row.crash_count) == (0, 0)


async def test_a_claim_repeated_during_a_stop_claims_no_further_job(app: Windlass) -> None:
    """Also if the store executes the repeated claim and never responds."""

    @app.task
    async def task() -> None: ...

    job = await task.aenqueue()
    claims, go = 0, asyncio.Event()

    class LateResponse(SpyStore):
        async def around(self, verb: str, call: Callable[[], Awaitable[T]]) -> T:
            nonlocal claims
            if verb != "claim":
                return await call()
            claims += 1
            if claims == 1:
                worker.stop()
                raise StoreUnavailableError("the request was lost")
            result = await call()
            await go.wait()
            return result

    worker = make_worker(app, LateResponse(app.client().store.twin()), release_timeout=0.1)
    await asyncio.wait_for(worker.run(), WAIT_TIMEOUT)
    go.set()
    assert claims == 2
    assert ((await job.arefresh()).state, job.row.attempt) == (State.QUEUED, 0)


async def test_jobs_claimed_during_a_stop_are_released_while_others_run(
    app: Windlass,
) -> None:
    started, response_lost, go, gate = (asyncio.Event() for _ in range(4))

    @app.task(queue="slow")
    async def slow() -> None:
        started.set()
        await gate.wait()

    @app.task
    async def task() -> None: ...

    running = await slow.aenqueue()
    lose = False

    class LostThenLate(SpyStore):
        async def around(self, verb: str, call: Callable[[], Awaitable[T]]) -> T:
            nonlocal lose
            result = await call()
            if verb == "claim" and lose and not response_lost.is_set():
                if not result:
                    return result
                response_lost.set()
                worker.stop()
                raise StoreUnavailableError("the response was lost")
            if verb == "claim" and response_lost.is_set():
                await go.wait()
            return result

    store = LostThenLate(app.client().store.twin())
    worker = make_worker(
        app, store, queues={"slow": 1, "default": 1}, release_timeout=0.05, grace=HOUR
    )
    working = asyncio.create_task(worker.run())
    await asyncio.wait_for(started.wait(), WAIT_TIMEOUT)
    lose = True
    job = await task.aenqueue()
    await asyncio.wait_for(response_lost.wait(), WAIT_TIMEOUT)
    done, _ = await asyncio.wait({working}, timeout=0.5)  # much longer than the release timeout
    assert not done
    go.set()

    async def released() -> bool:
        return (await job.arefresh()).state is State.QUEUED

    await eventually(released)
    gate.set()
    await asyncio.wait_for(working, WAIT_TIMEOUT)
    assert (job.row.attempt, job.row.retry_count, job.row.crash_count) == (1, 0, 0)
    assert (await running.arefresh()).state is State.SUCCEEDED


async def test_a_slot_freed_during_a_claim_is_not_overlooked(app: Windlass) -> None:
    go = asyncio.Event()

    @app.task(queue="mixed")
    async def task(slow: bool) -> None:
        if slow:
            await go.wait()

    long = await task.aenqueue(slow=True)
    quick = [await task.aenqueue(slow=False) for _ in range(8)]
    async with running_worker(app, queues={"idle": 1, "mixed": 2}, poll_interval=HOUR):
        for job in quick:
            assert (await job.await_end(WAIT_TIMEOUT)).state is State.SUCCEEDED
        go.set()
        await long.await_end(WAIT_TIMEOUT)


async def test_thousands_of_jobs_may_end_as_soon_as_they_start(app: Windlass) -> None:
    """Jobs do so if they were canceled, or lost their lease, while they waited for a slot."""

    @app.task
    async def task() -> None: ...

    await app.aenqueue_many([task.new_job() for _ in range(3000)])
    ended: list[RunningAttempt] = []
    async with fetcher_that_ends_jobs(
        app.client().store, config(queues={"default": 3000}, burst=True), ended.append
    ) as fetcher_under_test:
        await asyncio.wait_for(fetcher_under_test.run(), WAIT_TIMEOUT)
    assert len(ended) == 3000


async def test_a_repeated_claim_counts_its_leases_from_the_first_call(
    app: Windlass, monkeypatch: pytest.MonkeyPatch
) -> None:
    @app.task
    async def task() -> None: ...

    await task.aenqueue()
    first: list[float] = []
    sent: list[float] = []
    loop = asyncio.get_running_loop()

    def on_call(verb: str) -> None:
        if verb == "claim" and not first:
            first.append(loop.time())
            raise StoreUnavailableError("the response was lost")

    register = RunningAttempts.register

    def spied(self: RunningAttempts, jobs: list[JobRow], sent_at: float) -> list[RunningAttempt]:
        sent.append(sent_at)
        return register(self, jobs, sent_at)

    monkeypatch.setattr(RunningAttempts, "register", spied)
    async with fetcher_that_ends_jobs(
        SpyStore(app.client().store, on_call), config(burst=True), lambda _: None
    ) as fetcher_under_test:
        await asyncio.wait_for(fetcher_under_test.run(), WAIT_TIMEOUT)
    assert sent[0] <= first[0]


async def test_jobs_claimed_while_the_worker_is_cancelled_are_released(
    app: Windlass,
) -> None:
    @app.task
    async def task() -> None: ...

    job = await task.aenqueue()
    claimed, go = asyncio.Event(), asyncio.Event()

    class SlowClaim(SpyStore):
        async def around(self, verb: str, call: Callable[[], Awaitable[T]]) -> T:
            result = await call()
            if verb == "claim":
                claimed.set()
                await go.wait()
            return result

    worker = make_worker(app, SlowClaim(app.client().store.twin()))
    running = asyncio.create_task(worker.run())
    await asyncio.wait_for(claimed.wait(), WAIT_TIMEOUT)
    running.cancel()
    await asyncio.sleep(0)
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(asyncio.shield(running), WAIT_TIMEOUT)
    assert (await job.arefresh()).state is State.QUEUED
    assert job.row.crash_count == 0


async def test_a_burst_waits_for_the_jobs_of_a_worker_that_may_be_dead(app: Windlass) -> None:
    @app.task
    async def task() -> None: ...

    job = await task.aenqueue()
    dead = Claim(token=uuid7(), worker="dead", queues=[("default", 1)], lease=0.2)
    await app.client().store.claim(dead)
    await run_burst(app)
    assert (await job.arefresh()).state is State.SUCCEEDED


async def test_a_burst_does_not_wait_for_unknown_tasks(app: Windlass) -> None:
    @app.task
    async def known() -> None: ...

    store = app.client().store
    await store.enqueue([make_job(task="of another deploy")])
    job = await known.aenqueue()
    await run_burst(app)
    assert (await job.arefresh()).state is State.SUCCEEDED


async def test_a_job_that_was_running_when_a_worker_died_is_never_prefetched(
    app: Windlass, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker_slots, "MAX_PREFETCH_WAIT", HOUR)
    go = asyncio.Event()

    @app.task
    async def task() -> None:
        await go.wait()

    jobs = [await task.aenqueue() for _ in range(6)]
    dead = Claim(token=uuid7(), worker="dead", queues=[("default", 6)], lease=0.01)
    await app.client().store.claim(dead)

    def prefetch_many(slots: worker_slots.QueueSlots, now: float) -> None:
        slots.prefetch = 100

    monkeypatch.setattr(worker_slots.QueueSlots, "update_prefetch", prefetch_many)

    async def started() -> bool:
        now = await states(jobs)
        released = [job.row.attempt > 1 for job in jobs if job.state is State.QUEUED]
        return now.count(State.RUNNING) == 1 and any(released)

    async with running_worker(app, queues={"default": 1}):
        await eventually(started)
        go.set()
        for job in jobs:
            ended = await job.await_end(WAIT_TIMEOUT)
            assert (ended.state, ended.row.crash_count) == (State.SUCCEEDED, 1)


def test_a_short_interval_does_not_change_the_prefetch() -> None:
    slots = worker_slots.QueueSlots("default", 10)
    slots.update_prefetch(1.0)
    slots.ended = 2000
    slots.update_prefetch(1.1)
    assert slots.prefetch == worker_slots.MAX_PREFETCH

    slots.ended = 10  # a few milliseconds after a claim for empty slots
    slots.update_prefetch(1.105)
    assert slots.prefetch == worker_slots.MAX_PREFETCH

    slots.update_prefetch(1.3)  # slower jobs lower the prefetch
    assert slots.prefetch == 5


async def test_tasks_that_end_within_their_start_do_not_recurse(app: Windlass) -> None:
    """Python 3.12 can start tasks eagerly: a quick job then frees its slot at once."""

    @app.task
    async def task() -> None: ...

    await app.aenqueue_many([task.new_job() for _ in range(3000)])
    loop, ended = asyncio.get_running_loop(), 0

    def eager(of: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Future[Any]:
        if work.__qualname__ != "WorkerSlots._run":
            return asyncio.Task(work, loop=of, **options)
        with suppress(StopIteration):
            work.send(None)
        done: asyncio.Future[None] = of.create_future()
        done.set_result(None)
        return done

    def count(_: RunningAttempt) -> None:
        nonlocal ended
        ended += 1

    loop.set_task_factory(eager)
    try:
        async with fetcher_that_ends_jobs(
            app.client().store, config(queues={"default": 4}, burst=True), count
        ) as fetcher_under_test:
            await asyncio.wait_for(fetcher_under_test.run(), WAIT_TIMEOUT)
    finally:
        loop.set_task_factory(None)
    assert ended == 3000
