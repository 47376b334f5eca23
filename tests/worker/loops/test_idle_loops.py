"""A worker that has nothing to do does next to nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.worker.event_waits import WAIT_TIMEOUT, eventually
from tests.worker.workers import running_worker

from windlass import Windlass
from windlass.core.job.lease import Lease
from windlass.stores.memory import MemoryStore
from windlass.worker.loops import event_writer
from windlass.worker.loops.cancel_watcher import CancelWatcher
from windlass.worker.loops.event_writer import EventWriter
from windlass.worker.running_attempt import RunningAttempt

TURNS = 50  # of the event loop


@pytest.fixture
async def app() -> AsyncIterator[Windlass]:
    app = Windlass("memory:")
    yield app
    await app.aclose()


async def test_the_cancel_watcher_reads_only_while_attempts_run() -> None:
    busy, looked = asyncio.Event(), asyncio.Event()

    def running() -> list[Lease]:
        looked.set()
        return []

    follower = CancelWatcher(MemoryStore(), 0.0, running=running, on_cancel=print, busy=busy)
    await _looks_while(busy, looked, asyncio.create_task(follower.run()))


async def test_the_event_writer_runs_only_while_attempts_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_writer, "TICK", 0.0)
    busy, looked = asyncio.Event(), asyncio.Event()

    def attempts() -> list[RunningAttempt]:
        looked.set()
        return []

    await _looks_while(
        busy, looked, asyncio.create_task(EventWriter(attempts, on_lost=print, busy=busy).run())
    )


async def _looks_while(
    busy: asyncio.Event, looked: asyncio.Event, loop: asyncio.Task[None]
) -> None:
    for there_are in (False, True, False):
        (busy.set if there_are else busy.clear)()
        await _turns()  # running calls may end
        looked.clear()
        await _turns()
        assert looked.is_set() == there_are
    loop.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loop


async def _turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


async def test_a_worker_is_busy_from_a_claim_to_the_last_settle(app: Windlass) -> None:
    @app.task
    async def task() -> bool:
        return worker._busy.is_set()

    async with running_worker(app) as worker:
        await _turns()
        assert not worker._busy.is_set()
        job = await task.aenqueue()
        assert await job.aresult(WAIT_TIMEOUT)

        async def idle() -> bool:
            return not worker._busy.is_set()

        await eventually(idle)
