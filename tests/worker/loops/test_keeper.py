"""The keeper extends leases on its own thread, with its own store handle."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.worker.event_waits import WAIT_TIMEOUT, is_running, wait_for_event
from tests.worker.spy_store import SpyStore
from tests.worker.workers import run_to_end, running_worker

from windlass import Context, Windlass
from windlass.core.clock import SECOND
from windlass.core.errors import StoreUnavailableError
from windlass.core.job.lease import Lease
from windlass.core.job.state import State
from windlass.store import Store
from windlass.stores.memory import MemoryStore
from windlass.testing.clock import VirtualClock
from windlass.testing.factories import cancel_one, expired_jobs, get_one, start_one, sweep_all
from windlass.worker.loops.keeper import Keeper

LEASE = 0.3
SHORT = 0.02


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def app(tmp_path: Path, clock: VirtualClock) -> AsyncIterator[Windlass]:
    app = Windlass(f"sqlite:///{tmp_path}/jobs.db?durability=off", clock=clock)
    yield app
    await app.aclose()


class ReadDrivenClock(VirtualClock):
    """A clock that advances only when the keeper reads it, so that a stalled keeper is not late.

    Each read advances it by a hundredth of `SHORT`; `over` is set after three times `SHORT`.
    """

    def __init__(self) -> None:
        super().__init__()
        self.over = threading.Event()
        self._end = self.now() + 3 * SHORT * SECOND

    def monotonic(self) -> float:
        now = self.advance(SHORT / 100)
        if now >= self._end:
            self.over.set()
        return now / SECOND


class SlowExtensions:
    """For a SpyStore: after `started`, 0.9 of a lease pass before each of four extensions.

    `kept` is set at the fourth. If one extension were missing, the lease would expire.
    """

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._extensions = 0
        self.started = threading.Event()
        self.kept = threading.Event()

    def __call__(self, verb: str) -> None:
        if verb == "extend" and self.started.is_set() and not self.kept.is_set():
            self._clock.advance(0.9 * LEASE)
            self._extensions += 1
            if self._extensions == 4:
                self.kept.set()


class KeeperCalls:
    """Records the callbacks of a keeper; the first one sets `called`."""

    def __init__(self) -> None:
        self.lost: list[Lease] = []
        self.cancels: list[Lease] = []
        self.called = threading.Event()

    def on_lost(self, lease: Lease) -> None:
        self.lost.append(lease)
        self.called.set()

    def on_cancel(self, lease: Lease) -> None:
        self.cancels.append(lease)
        self.called.set()


@asynccontextmanager
async def running_keeper(
    store: Store, clock: Callable[[], float] = time.monotonic
) -> AsyncIterator[tuple[Keeper, KeeperCalls]]:
    calls = KeeperCalls()
    keeper = Keeper(store, on_lost=calls.on_lost, on_cancel=calls.on_cancel, clock=clock)
    keeper.start()
    try:
        yield keeper, calls
    finally:
        await keeper.stop()


async def test_a_held_lease_is_extended_until_it_is_dropped() -> None:
    clock = ReadDrivenClock()
    store = MemoryStore(clock=clock)
    row = await start_one(store, lease=SHORT)
    async with running_keeper(store.twin(), clock.monotonic) as (keeper, calls):
        keeper.hold(row.lease, SHORT)
        assert await asyncio.to_thread(clock.over.wait, WAIT_TIMEOUT)
        assert await expired_jobs(store, 10) == []
        keeper.drop(row.lease)
    assert calls.lost == []


async def test_a_short_lease_held_after_a_long_one_is_extended_in_time() -> None:
    store = MemoryStore()
    calls: list[float] = []
    done = threading.Event()

    def on_call(verb: str) -> None:
        if verb == "extend":
            calls.append(time.monotonic())
            if len(calls) == 3:
                done.set()

    long, short = await start_one(store), await start_one(store)
    async with running_keeper(SpyStore(store.twin(), on_call)) as (keeper, _):
        keeper.hold(long.lease, 3600)
        keeper.hold(short.lease, 0.1)
        assert await asyncio.to_thread(done.wait, WAIT_TIMEOUT)
    lease_until = (await get_one(store, long.id)).lease_until or 0
    assert lease_until < (await store.ping()) + 60_000_000  # the long lease was not extended


async def test_a_lost_lease_is_reported_once_and_dropped() -> None:
    clock = VirtualClock()
    store = MemoryStore(clock=clock)
    row = await start_one(store)
    clock.advance(3600)
    await sweep_all(store)
    async with running_keeper(store.twin()) as (keeper, calls):
        keeper.hold(row.lease, 0.05)
        assert await asyncio.to_thread(calls.called.wait, WAIT_TIMEOUT)
        await asyncio.sleep(0.1)
    assert calls.lost == [row.lease]


async def test_a_cancel_is_reported_by_the_extension() -> None:
    store = MemoryStore()
    row = await start_one(store)
    await cancel_one(store, row.id)
    async with running_keeper(store.twin()) as (keeper, calls):
        keeper.hold(row.lease, 0.05)
        assert await asyncio.to_thread(calls.called.wait, WAIT_TIMEOUT)
    assert calls.cancels[0] == row.lease
    assert calls.lost == []


@pytest.mark.parametrize("error", [StoreUnavailableError("unavailable"), RuntimeError("a bug")])
async def test_a_failed_extension_is_retried_before_the_lease_is_lost(
    error: Exception,
) -> None:
    clock = ReadDrivenClock()
    store = MemoryStore(clock=clock)
    failures = 3

    def on_call(verb: str) -> None:
        nonlocal failures
        if verb == "extend" and failures:
            failures -= 1
            raise error

    row = await start_one(store, lease=SHORT)
    async with running_keeper(SpyStore(store.twin(), on_call), clock.monotonic) as (keeper, calls):
        keeper.hold(row.lease, SHORT)
        assert await asyncio.to_thread(clock.over.wait, WAIT_TIMEOUT)
        assert await expired_jobs(store, 10) == []
    assert (calls.lost, failures) == ([], 0)


async def test_the_keeper_stops_at_once_even_with_long_leases() -> None:
    store = MemoryStore()
    row = await start_one(store)
    started_at = time.monotonic()
    async with running_keeper(store.twin()) as (keeper, _):
        keeper.hold(row.lease, 3600)
    assert time.monotonic() - started_at < WAIT_TIMEOUT


async def test_a_blocked_event_loop_loses_no_lease(app: Windlass, clock: VirtualClock) -> None:
    extensions = SlowExtensions(clock)
    was_swept, over = threading.Event(), threading.Event()

    @app.task
    async def blocking() -> bool:
        extensions.started.set()
        return was_swept.wait(WAIT_TIMEOUT / 2)  # blocking the event loop on purpose

    job = await blocking.aenqueue()

    def other_process() -> None:
        """Rescue expired leases on another event loop, as the sweeper of another process does."""

        async def sweep() -> None:
            async with rescuer:
                while not over.is_set():
                    kept = extensions.kept.is_set()
                    await sweep_all(rescuer)
                    if kept:
                        was_swept.set()
                    await asyncio.sleep(LEASE / 10)

        asyncio.run(sweep())

    rescuer = app.client().store.twin()
    other = asyncio.create_task(asyncio.to_thread(other_process))
    try:
        spy = SpyStore(app.client().store.twin(), extensions)
        row = await run_to_end(app, job, store=spy, lease=LEASE)
    finally:
        over.set()
        await other
    assert (row.state, row.attempt, row.crash_count) == (State.SUCCEEDED, 1, 0)
    assert await job.aresult(WAIT_TIMEOUT) is True


async def test_a_worker_may_override_the_lease_length_of_a_task(app: Windlass) -> None:
    go = threading.Event()

    @app.task(lease="2h")
    def long_leased() -> None:
        go.wait(WAIT_TIMEOUT)

    for lease, expected in ((None, 7200), (60.0, 60)):
        go.clear()
        job = await long_leased.aenqueue()
        async with running_worker(app, lease=lease):
            await wait_for_event(job, is_running)
            row = (await job.arefresh()).row
            assert row.lease_until is not None
            assert row.started_at is not None
            assert row.lease_until - row.started_at == expected * 1_000_000
            go.set()
            await job.await_end(WAIT_TIMEOUT)


async def test_a_short_lease_of_a_task_is_extended_in_time(
    app: Windlass, clock: VirtualClock
) -> None:
    extensions = SlowExtensions(clock)

    @app.task(lease=LEASE)
    def short_leased(ctx: Context) -> int:
        extensions.started.set()
        assert extensions.kept.wait(WAIT_TIMEOUT)
        return ctx.attempt

    job = await short_leased.aenqueue()
    row = await run_to_end(app, job, store=SpyStore(app.client().store.twin(), extensions))
    assert (row.state, row.attempt) == (State.SUCCEEDED, 1)
