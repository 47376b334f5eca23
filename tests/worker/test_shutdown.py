"""A shutdown takes a bounded time, also if tasks, threads or the store do not respond."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeVar

import pytest
from tests.worker.event_waits import WAIT_TIMEOUT
from tests.worker.spy_store import SpyStore
from tests.worker.workers import make_worker

from windlass import Context, Windlass
from windlass.core.decisions.transition import ApplyRequest, ApplyResult
from windlass.core.errors import StoreUnavailableError
from windlass.core.job.state import State
from windlass.worker.running_attempts import StopReason
from windlass.worker.slots import QueueSlots

T = TypeVar("T")


@pytest.fixture
async def app() -> AsyncIterator[Windlass]:
    app = Windlass("memory:")
    yield app
    await app.aclose()


async def test_a_task_that_ignores_its_cancel_is_left_to_lease_expiry(
    app: Windlass, caplog: pytest.LogCaptureFixture
) -> None:
    started, go = asyncio.Event(), asyncio.Event()

    @app.task
    async def ignores_cancel() -> None:
        started.set()
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue

    job = await ignores_cancel.aenqueue()
    worker = make_worker(app, grace=0.0, release_timeout=0.1)
    running = asyncio.create_task(worker.run())
    await started.wait()
    worker.stop()
    await asyncio.wait_for(running, WAIT_TIMEOUT)
    assert (await job.arefresh()).state is State.RUNNING
    assert f"did not stop in time; will be retried after lease expiry: {job.id}" in caplog.text
    go.set()


async def test_a_thread_that_does_not_return_delays_a_stop_only_briefly(app: Windlass) -> None:
    started, go = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    @app.task
    def busy(ctx: Context) -> None:
        loop.call_soon_threadsafe(started.set)
        go.wait()

    job = await busy.aenqueue()
    worker = make_worker(app, grace=0.0, release_timeout=0.1)
    running = asyncio.create_task(worker.run())
    await started.wait()
    worker.stop()
    await asyncio.wait_for(running, WAIT_TIMEOUT)
    assert (await job.arefresh()).state is State.RUNNING
    go.set()


async def test_a_store_outage_does_not_delay_a_stop(app: Windlass) -> None:
    unavailable = False
    started = asyncio.Event()

    def on_call(verb: str) -> None:
        if unavailable and verb != "close":
            raise StoreUnavailableError("unavailable")

    @app.task
    async def task() -> None:
        started.set()
        await asyncio.Event().wait()

    job = await task.aenqueue()
    worker = make_worker(
        app, SpyStore(app.client().store.twin(), on_call), grace=0.0, release_timeout=0.1
    )
    running = asyncio.create_task(worker.run())
    await started.wait()
    unavailable = True
    worker.stop()
    await asyncio.wait_for(running, WAIT_TIMEOUT)
    assert (await job.arefresh()).state is State.RUNNING  # the store was unavailable


@pytest.mark.parametrize("unbounded", [False, True])
@pytest.mark.parametrize("verb", ["claim", "stats"])
async def test_a_store_call_without_response_does_not_delay_a_stop(
    app: Windlass, verb: str, unbounded: bool
) -> None:
    call_sent = asyncio.Event()

    class UnansweredCall(SpyStore):
        async def around(self, called: str, call: Callable[[], Awaitable[T]]) -> T:
            if called == verb:
                call_sent.set()
                await asyncio.Event().wait()
            return await call()

    before = asyncio.all_tasks()
    store = UnansweredCall(app.client().store.twin())
    worker = make_worker(app, store, burst=True, grace=0.0, release_timeout=0.1)
    running = asyncio.create_task(worker.run())
    await asyncio.wait_for(call_sent.wait(), WAIT_TIMEOUT)
    worker.stop(unbounded=unbounded)
    await asyncio.wait_for(running, WAIT_TIMEOUT)
    assert asyncio.all_tasks() == before


async def test_jobs_of_a_claim_without_response_are_left_to_lease_expiry(app: Windlass) -> None:
    @app.task
    async def task() -> None: ...

    job = await task.aenqueue()
    claimed = asyncio.Event()

    class UnansweredClaim(SpyStore):
        async def around(self, verb: str, call: Callable[[], Awaitable[T]]) -> T:
            result = await call()
            if verb == "claim":
                claimed.set()
                await asyncio.Event().wait()
            return result

    store = UnansweredClaim(app.client().store.twin())
    worker = make_worker(app, store, grace=0.0, release_timeout=0.1)
    running = asyncio.create_task(worker.run())
    await asyncio.wait_for(claimed.wait(), WAIT_TIMEOUT)
    worker.stop()
    await asyncio.wait_for(running, WAIT_TIMEOUT)
    assert (await job.arefresh()).state is State.RUNNING


async def test_jobs_claimed_after_the_stop_are_released(app: Windlass) -> None:
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

    store = SlowClaim(app.client().store.twin())
    worker = make_worker(app, store, grace=0.0, release_timeout=WAIT_TIMEOUT)
    running = asyncio.create_task(worker.run())
    await asyncio.wait_for(claimed.wait(), WAIT_TIMEOUT)
    worker.stop()
    await asyncio.sleep(0)
    go.set()
    await asyncio.wait_for(running, WAIT_TIMEOUT)
    assert (await job.arefresh()).state is State.QUEUED
    assert job.row.crash_count == 0


async def test_a_worker_cancelled_repeatedly_leaves_no_task_and_no_thread(
    app: Windlass,
) -> None:
    started, go = asyncio.Event(), asyncio.Event()

    @app.task
    async def slow_to_end() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            await go.wait()

    job = await slow_to_end.aenqueue()
    before = asyncio.all_tasks()
    running = asyncio.create_task(make_worker(app).run())
    await started.wait()
    for _ in range(3):
        running.cancel()
        await asyncio.sleep(0)
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(asyncio.shield(running), WAIT_TIMEOUT)
    assert (await job.arefresh()).state is State.QUEUED  # released, not left to lease expiry
    assert asyncio.all_tasks() == before
    assert not [thread for thread in threading.enumerate() if thread.name == "windlass-keeper"]


async def test_an_unbounded_stop_waits_for_running_tasks(app: Windlass) -> None:
    started, go = asyncio.Event(), asyncio.Event()

    @app.task
    async def long() -> None:
        started.set()
        await go.wait()

    job = await long.aenqueue()
    second_job = await long.aenqueue()
    worker = make_worker(app, grace=0.0, queues={"default": 1})
    running = asyncio.create_task(worker.run())
    await started.wait()
    worker.stop(unbounded=True)
    done, _ = await asyncio.wait({running}, timeout=0.2)
    assert not done
    go.set()
    await asyncio.wait_for(running, WAIT_TIMEOUT)
    assert (await job.arefresh()).state is State.SUCCEEDED
    assert (await second_job.arefresh()).state is State.QUEUED


async def test_a_second_stop_starts_the_grace_period(app: Windlass) -> None:
    started = asyncio.Event()

    @app.task
    async def endless() -> None:
        started.set()
        await asyncio.Event().wait()

    job = await endless.aenqueue()
    worker = make_worker(app, grace=0.0)
    running = asyncio.create_task(worker.run())
    await started.wait()
    worker.stop(unbounded=True)
    worker.stop()
    await asyncio.wait_for(running, WAIT_TIMEOUT)
    assert (await job.arefresh()).state is State.QUEUED


async def test_a_task_that_swallowed_a_cancel_is_cancelled_again_by_a_stop(
    app: Windlass,
) -> None:
    started, swallowed = asyncio.Event(), asyncio.Event()

    @app.task
    async def swallows_cancel() -> None:
        started.set()
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        swallowed.set()
        await asyncio.Event().wait()

    job = await swallows_cancel.aenqueue()
    worker = make_worker(app, grace=0.0, cancel_poll_interval=0.01)
    running = asyncio.create_task(worker.run())
    await started.wait()
    await job.acancel()
    await asyncio.wait_for(swallowed.wait(), WAIT_TIMEOUT)
    worker.stop()
    await asyncio.wait_for(running, WAIT_TIMEOUT)
    assert (await job.arefresh()).state is State.CANCELED


async def test_an_attempt_stopped_before_its_first_step_ends(app: Windlass) -> None:
    ran = False

    @app.task
    async def task() -> None:
        nonlocal ran
        ran = True

    job = await task.aenqueue()
    worker = make_worker(app, queues={"default": 1})
    fill = worker._slots._fill

    def fill_and_stop(slots: QueueSlots) -> None:
        fill(slots)
        for lease in worker._attempts.leases:  # same iteration of the event loop
            worker._attempts.stop(lease, StopReason.CANCEL)

    worker._slots._fill = fill_and_stop  # type: ignore[method-assign]
    await job.acancel()
    second_job = await task.aenqueue()
    running = asyncio.create_task(worker.run())
    await second_job.await_end(WAIT_TIMEOUT)
    worker.stop()
    await asyncio.wait_for(running, WAIT_TIMEOUT)
    assert not ran


async def test_a_job_that_cannot_be_settled_blocks_no_other_settle(
    app: Windlass, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task
    async def task() -> None: ...

    jobs = await app.aenqueue_many([task.new_job() for _ in range(5)])
    bad = jobs[2].id

    class FailingApply(SpyStore):
        async def apply(self, requests: Sequence[ApplyRequest]) -> list[ApplyResult]:
            if any(request.job_id == bad for request in requests):
                raise ZeroDivisionError("a bug")
            return await super().apply(requests)

    worker = make_worker(app, FailingApply(app.client().store.twin()))
    running = asyncio.create_task(worker.run())
    for job in jobs:
        if job.id != bad:
            assert (await job.await_end(WAIT_TIMEOUT)).state is State.SUCCEEDED
    worker.stop()
    await asyncio.wait_for(running, WAIT_TIMEOUT)
    assert (await jobs[2].arefresh()).state is State.RUNNING  # left to lease expiry
    assert "could not be settled" in caplog.text


async def test_a_worker_whose_loop_failed_stops_and_logs_it(app: Windlass) -> None:
    @app.task
    async def task() -> None: ...

    worker = make_worker(app)

    async def broken(no_backlog: asyncio.Event) -> None:
        raise ZeroDivisionError("a bug")

    worker._settler.run = broken  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(worker.run(), WAIT_TIMEOUT)
