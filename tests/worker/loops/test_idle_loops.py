"""Loops of a worker do nothing while no attempt runs."""

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
from windlass.worker.running_attempts import RunningAttempt

TURNS = 50  # iterations of the event loop


@pytest.fixture
async def app() -> AsyncIterator[Windlass]:
    app = Windlass("memory:")
    yield app
    await app.aclose()


async def test_the_cancel_watcher_reads_only_while_attempts_run() -> None:
    busy, checked = asyncio.Event(), asyncio.Event()

    def running() -> list[Lease]:
        checked.set()
        return []

    watcher = CancelWatcher(MemoryStore(), 0.0, running=running, on_cancel=print, busy=busy)
    await _assert_checks_while_busy(busy, checked, asyncio.create_task(watcher.run()))


async def test_the_event_writer_runs_only_while_attempts_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(event_writer, "TICK", 0.0)
    busy, checked = asyncio.Event(), asyncio.Event()

    def attempts() -> list[RunningAttempt]:
        checked.set()
        return []

    await _assert_checks_while_busy(
        busy, checked, asyncio.create_task(EventWriter(attempts, on_lost=print, busy=busy).run())
    )


async def _assert_checks_while_busy(
    busy: asyncio.Event, checked: asyncio.Event, loop: asyncio.Task[None]
) -> None:
    for has_attempts in (False, True, False):
        (busy.set if has_attempts else busy.clear)()
        await _run_event_loop()  # running calls may end
        checked.clear()
        await _run_event_loop()
        assert checked.is_set() == has_attempts
    loop.cancel()
    with pytest.raises(asyncio.CancelledError):
        await loop


async def _run_event_loop() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


async def test_a_worker_is_busy_from_a_claim_to_the_last_settle(app: Windlass) -> None:
    @app.task
    async def task() -> bool:
        return worker._attempts.busy.is_set()

    async with running_worker(app) as worker:
        await _run_event_loop()
        assert not worker._attempts.busy.is_set()
        job = await task.aenqueue()
        assert await job.aresult(WAIT_TIMEOUT)

        async def idle() -> bool:
            return not worker._attempts.busy.is_set()

        await eventually(idle)
