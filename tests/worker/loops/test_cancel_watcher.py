"""A cancel reaches a running task with the next look, from any process."""

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
    return await app.client().cancel(UUID(sys.argv[2]), reason="from afar")

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


class Looks(SpyStore):
    """Counts the reads that show a cancel to a worker whose task has not been asked to stop."""

    def __init__(self, store: Store) -> None:
        super().__init__(store, lambda _: None)
        self.shown = 0
        self.started = threading.Event()

    def begin(self, ctx: Context) -> None:
        """The task calls this first."""
        self._ctx = ctx
        self.started.set()

    async def get(self, ids: Sequence[UUID], owner: str | None = None) -> list[JobRow | None]:
        rows = await super().get(ids, owner)
        if any(row is not None and row.cancel_requested for row in rows):
            self.shown += not self._ctx.cancelled
        return rows


@pytest.fixture
async def looks(app: Windlass) -> Looks:
    return Looks(app.client().store.twin())


def test_a_worker_checks_cancels_several_times_a_second() -> None:
    assert WorkerConfig().cancel_poll_interval <= 0.25


async def test_a_cancel_stops_an_async_task_at_once(app: Windlass, looks: Looks) -> None:
    @app.task
    async def task(ctx: Context) -> None:
        looks.begin(ctx)
        await asyncio.Event().wait()

    job = await task.aenqueue()
    async with running_worker(app, looks, lease=HOUR):
        assert await asyncio.to_thread(looks.started.wait, WAIT_TIMEOUT)
        assert await job.acancel("enough") is State.RUNNING
        row = (await job.await_end(WAIT_TIMEOUT)).row
    assert looks.shown == 1
    assert (row.state, row.cancel_reason) == (State.CANCELED, "enough")


async def test_a_cancel_reaches_a_sync_task_at_once(app: Windlass, looks: Looks) -> None:
    seen: list[bool] = []

    @app.task
    def task(ctx: Context) -> None:
        looks.begin(ctx)
        seen.append(ctx.cancel_flag.wait(WAIT_TIMEOUT))

    job = await task.aenqueue()
    async with running_worker(app, looks, lease=HOUR):
        assert await asyncio.to_thread(looks.started.wait, WAIT_TIMEOUT)
        await job.acancel()
        row = (await job.await_end(WAIT_TIMEOUT)).row
    assert (looks.shown, seen) == (1, [True])
    assert row.state is State.CANCELED


async def test_a_cancel_from_another_process_stops_an_async_task_at_once(tmp_path: Path) -> None:
    app = Windlass(f"sqlite:///{tmp_path}/jobs.db")
    looks = Looks(app.client().store.twin())

    @app.task
    async def task(ctx: Context) -> None:
        looks.begin(ctx)
        await asyncio.Event().wait()

    job = await task.aenqueue()
    async with running_worker(app, looks, lease=HOUR):
        assert await asyncio.to_thread(looks.started.wait, WAIT_TIMEOUT)
        shown = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-c", CANCEL, app.url, str(job.id)],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        assert shown.stdout.strip() == "running"
        row = (await job.await_end(WAIT_TIMEOUT)).row
    assert looks.shown == 1
    assert (row.state, row.cancel_reason) == (State.CANCELED, "from afar")
    await app.aclose()


class Reads(SpyStore):
    """Counts reads of jobs; sets an event after three."""

    def __init__(self, store: Store) -> None:
        self.gets = 0
        self.enough = asyncio.Event()
        super().__init__(store, self._note)

    def _note(self, verb: str) -> None:
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
    began = clock()
    async with running_worker(app, reads, cancel_poll_interval=0.1):
        for job in jobs:
            await job.await_end(WAIT_TIMEOUT)
        assert 3 <= reads.gets <= (clock() - began) / 0.1


async def test_attempts_shorter_than_the_interval_cost_no_read(app: Windlass) -> None:
    looks = 0
    enough = asyncio.Event()

    def always_another() -> list[Lease]:
        nonlocal looks
        looks += 1
        if looks == 20:
            enough.set()
        return [Lease(uuid7(), 1, uuid7())]

    reads = Reads(app.client().store)
    follower = CancelWatcher(
        reads, 0.001, running=always_another, on_cancel=lambda _: None, busy=set_event()
    )
    following = asyncio.create_task(follower.run())
    await asyncio.wait_for(enough.wait(), WAIT_TIMEOUT)
    following.cancel()
    assert reads.gets == 0


async def test_a_store_outage_does_not_end_the_cancel_watcher(app: Windlass) -> None:
    looks = 0
    cancelled = asyncio.Event()

    def fail_at_first(verb: str) -> None:
        nonlocal looks
        looks += 1
        if looks < 3:
            raise StoreUnavailableError("away")

    @app.task
    async def task() -> None: ...

    job = await task.aenqueue()
    store = app.client().store
    [row] = await store.claim(Claim(token=uuid7(), worker="w", queues=[("default", 1)], lease=HOUR))
    await job.acancel()
    follower = CancelWatcher(
        SpyStore(store, fail_at_first),
        0.001,
        running=lambda: [row.lease],
        on_cancel=lambda lease: cancelled.set(),
        busy=set_event(),
    )
    following = asyncio.create_task(follower.run())
    await asyncio.wait_for(cancelled.wait(), WAIT_TIMEOUT)
    following.cancel()
    assert looks >= 3
