"""A cancel from any process reaches a running task at the next read of the cancel watcher."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from uuid import UUID

import pytest
from tests.worker.event_waits import WAIT_TIMEOUT, set_event
from tests.worker.spy_store import SpyStore
from tests.worker.workers import running_worker

from windlass import Context, State, Windlass, WorkerConfig
from windlass.core.errors import StoreUnavailableError
from windlass.core.ids import uuid7
from windlass.core.job.lease import Claim, Lease
from windlass.core.job.row import JobRow
from windlass.store import Store
from windlass.worker.loops.cancel_watcher import CancelWatcher

HOUR = 3600.0  # a lease so long that no extension reports the cancel
CANCEL = """
import sys
from uuid import UUID
from windlass import Windlass

app = Windlass(sys.argv[1])

async def cancel():
    return await app.client().cancel(UUID(sys.argv[2]), reason="from another process")

print(app.sync.call(cancel()))
app.close()
"""


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/jobs.db"


@pytest.fixture
async def app(url: str) -> AsyncIterator[Windlass]:
    app = Windlass(url)
    yield app
    await app.aclose()


class CancelReads(SpyStore):
    """Counts reads that return a cancel request before the task has received it."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.unseen_cancels = 0
        self.started = threading.Event()

    def task_started(self, ctx: Context) -> None:
        """To be called by the task first."""
        self._ctx = ctx
        self.started.set()

    async def get(self, ids: Sequence[UUID], owner: str | None = None) -> list[JobRow | None]:
        rows = await super().get(ids, owner)
        if any(row is not None and row.cancel_requested for row in rows):
            self.unseen_cancels += not self._ctx.cancelled
        return rows


@pytest.fixture
async def cancel_reads(app: Windlass) -> CancelReads:
    return CancelReads(app.client().store.twin())


def test_a_worker_checks_cancels_several_times_a_second() -> None:
    assert WorkerConfig().cancel_poll_interval <= 0.25


async def test_a_cancel_stops_an_async_task_at_once(
    app: Windlass, cancel_reads: CancelReads
) -> None:
    @app.task
    async def task(ctx: Context) -> None:
        cancel_reads.task_started(ctx)
        await asyncio.Event().wait()

    job = await task.aenqueue()
    async with running_worker(app, cancel_reads, lease=HOUR):
        assert await asyncio.to_thread(cancel_reads.started.wait, WAIT_TIMEOUT)
        assert await job.acancel("enough") is State.RUNNING
        row = (await job.await_end(WAIT_TIMEOUT)).row
    assert cancel_reads.unseen_cancels == 1
    assert (row.state, row.cancel_reason) == (State.CANCELED, "enough")


async def test_a_cancel_reaches_a_sync_task_at_once(
    app: Windlass, cancel_reads: CancelReads
) -> None:
    seen: list[bool] = []

    @app.task
    def task(ctx: Context) -> None:
        cancel_reads.task_started(ctx)
        seen.append(ctx.cancel_flag.wait(WAIT_TIMEOUT))

    job = await task.aenqueue()
    async with running_worker(app, cancel_reads, lease=HOUR):
        assert await asyncio.to_thread(cancel_reads.started.wait, WAIT_TIMEOUT)
        await job.acancel()
        row = (await job.await_end(WAIT_TIMEOUT)).row
    assert (cancel_reads.unseen_cancels, seen) == (1, [True])
    assert row.state is State.CANCELED


async def test_a_cancel_from_another_process_stops_an_async_task_at_once(tmp_path: Path) -> None:
    app = Windlass(f"sqlite:///{tmp_path}/jobs.db")
    cancel_reads = CancelReads(app.client().store.twin())

    @app.task
    async def task(ctx: Context) -> None:
        cancel_reads.task_started(ctx)
        await asyncio.Event().wait()

    job = await task.aenqueue()
    async with running_worker(app, cancel_reads, lease=HOUR):
        assert await asyncio.to_thread(cancel_reads.started.wait, WAIT_TIMEOUT)
        printed = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", CANCEL, app.url, str(job.id)],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        assert printed.stdout.strip() == "running"
        row = (await job.await_end(WAIT_TIMEOUT)).row
    assert cancel_reads.unseen_cancels == 1
    assert (row.state, row.cancel_reason) == (State.CANCELED, "from another process")
    await app.aclose()


class Reads(SpyStore):
    """Counts reads of jobs; the third sets `enough`."""

    def __init__(self, store: Store) -> None:
        self.gets = 0
        self.enough = asyncio.Event()
        super().__init__(store, self._count)

    def _count(self, verb: str) -> None:
        self.gets += verb == "get"
        if self.gets == 3:
            self.enough.set()


async def test_all_running_jobs_are_checked_in_one_read_per_interval(app: Windlass) -> None:
    reads = Reads(app.client().store.twin())
    clock = asyncio.get_running_loop().time

    @app.task
    async def slow() -> None:
        await reads.enough.wait()

    jobs = [await slow.aenqueue() for _ in range(5)]
    started_at = clock()
    async with running_worker(app, reads, cancel_poll_interval=0.1):
        for job in jobs:
            await job.await_end(WAIT_TIMEOUT)
        assert 3 <= reads.gets <= (clock() - started_at) / 0.1


async def test_attempts_shorter_than_the_interval_cost_no_read(app: Windlass) -> None:
    checks = 0
    enough = asyncio.Event()

    def another_attempt() -> list[Lease]:
        nonlocal checks
        checks += 1
        if checks == 20:
            enough.set()
        return [Lease(uuid7(), 1, uuid7())]

    reads = Reads(app.client().store)
    watcher = CancelWatcher(
        reads, 0.001, running=another_attempt, on_cancel=lambda _: None, busy=set_event()
    )
    running = asyncio.create_task(watcher.run())
    await asyncio.wait_for(enough.wait(), WAIT_TIMEOUT)
    running.cancel()
    assert reads.gets == 0


async def test_a_store_outage_does_not_end_the_cancel_watcher(app: Windlass) -> None:
    calls = 0
    cancelled = asyncio.Event()

    def fail_at_first(verb: str) -> None:
        nonlocal calls
        calls += 1
        if calls < 3:
            raise StoreUnavailableError("unavailable")

    @app.task
    async def task() -> None: ...

    job = await task.aenqueue()
    store = app.client().store
    [row] = await store.claim(Claim(token=uuid7(), worker="w", queues=[("default", 1)], lease=HOUR))
    await job.acancel()
    watcher = CancelWatcher(
        SpyStore(store, fail_at_first),
        0.001,
        running=lambda: [row.lease],
        on_cancel=lambda lease: cancelled.set(),
        busy=set_event(),
    )
    running = asyncio.create_task(watcher.run())
    await asyncio.wait_for(cancelled.wait(), WAIT_TIMEOUT)
    running.cancel()
    assert calls >= 3
