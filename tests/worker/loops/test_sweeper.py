"""The sweeper promotes due jobs, rescues expired leases, and prunes old jobs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

import pytest
from tests.worker.event_waits import WAIT_TIMEOUT
from tests.worker.spy_store import SpyStore

from windlass.core.decisions.outcome import Succeeded
from windlass.core.decisions.transition import ApplyRequest, ApplyResult, Status
from windlass.core.errors import StoreUnavailableError
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.core.query.job_query import JobQuery
from windlass.store import DAY, Retention
from windlass.stores.memory import MemoryStore
from windlass.testing.clock import VirtualClock
from windlass.testing.factories import (
    claim_all,
    enqueue_one,
    get_one,
    make_job,
    settle_one,
    start_one,
)
from windlass.worker.loops import sweeper as module
from windlass.worker.loops.sweeper import Sweeper


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def store(clock: VirtualClock) -> MemoryStore:
    return MemoryStore(clock=clock)


@pytest.fixture
def sweeper(store: MemoryStore) -> Sweeper:
    return Sweeper(store, 0.01, Retention())


async def test_a_due_job_is_queued(
    store: MemoryStore, sweeper: Sweeper, clock: VirtualClock
) -> None:
    job = await enqueue_one(store, delay=60.0)
    assert await sweeper.once() == 0
    clock.advance(60)
    assert await sweeper.once() == 1
    assert (await get_one(store, job.id)).state is State.QUEUED


async def test_an_expired_lease_is_rescued_and_counted_as_a_crash(
    store: MemoryStore, sweeper: Sweeper, clock: VirtualClock
) -> None:
    row = await start_one(store)
    clock.advance(29)
    assert await sweeper.once() == 0
    clock.advance(2)
    assert await sweeper.once() == 1
    rescued = await get_one(store, row.id)
    assert (rescued.state, rescued.crash_count) == (State.QUEUED, 1)


async def test_a_job_past_its_expiry_fails_unstarted(
    store: MemoryStore, sweeper: Sweeper, clock: VirtualClock
) -> None:
    job = await enqueue_one(store, expires_in=10.0)
    clock.advance(10)
    assert await sweeper.once() == 1
    assert (await get_one(store, job.id)).state is State.FAILED


async def test_more_than_a_batch_is_moved_in_one_sweep(
    store: MemoryStore, sweeper: Sweeper, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH", 7)
    await store.enqueue([make_job(delay=5.0) for _ in range(30)])
    await store.enqueue([make_job() for _ in range(30)])
    await claim_all(store)
    clock.advance(60)
    assert await sweeper.once() == 60


async def test_a_sweep_whose_writes_are_all_stale_ends(
    store: MemoryStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another sweeper may be faster each time; this one continues at its next interval."""

    class StaleWrites(MemoryStore):
        async def apply(self, requests: Sequence[ApplyRequest]) -> list[ApplyResult]:
            return [ApplyResult(Status.STALE) for _ in requests]

        async def due(self, limit: int) -> list[JobRow]:
            return [row] * limit

    monkeypatch.setattr(module, "BATCH", 2)
    row = await enqueue_one(store, delay=5.0)
    store_with_stale_writes = StaleWrites(_data=store._data)
    assert (
        await asyncio.wait_for(
            Sweeper(store_with_stale_writes, 1, Retention()).once(), WAIT_TIMEOUT
        )
        == 0
    )


async def test_all_jobs_past_retention_are_pruned(
    store: MemoryStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BATCH", 3)
    for _ in range(20):
        await settle_one(store, await start_one(store), Succeeded())
    clock.advance(31 * DAY)
    kept = await enqueue_one(store)
    pruned = 0
    swept = asyncio.Event()

    def on_call(verb: str) -> None:
        nonlocal pruned
        pruned += verb == "prune"
        if pruned and verb == "due":
            swept.set()

    running = asyncio.create_task(Sweeper(SpyStore(store, on_call), 0.001, Retention()).run())
    await asyncio.wait_for(swept.wait(), WAIT_TIMEOUT)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert [row.id for row in (await store.find(JobQuery())).rows] == [kept.id]


async def test_a_sweep_is_repeated_after_a_store_failure(
    store: MemoryStore, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    failures = 2

    def on_call(verb: str) -> None:
        nonlocal failures
        if verb == "apply" and failures:
            failures -= 1
            raise StoreUnavailableError("unavailable")

    job = await enqueue_one(store, delay=5.0)
    clock.advance(5)
    running = asyncio.create_task(Sweeper(SpyStore(store, on_call), 0.001, Retention()).run())
    async with asyncio.timeout(WAIT_TIMEOUT):
        async for event in store.tail(job.id):
            if event.data["status"] == "queued":
                break
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    warnings = [r for r in caplog.records if r.levelno == logging.WARNING]
    failed = [r.getMessage() for r in warnings if "failed" in r.getMessage()]
    assert failed == ["Sweeping failed; retrying: unavailable"], "one warning for two failures"
