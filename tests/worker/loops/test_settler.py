"""The settler stores outcomes in batches, without delaying any."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.worker.event_waits import WAIT_TIMEOUT
from tests.worker.workers import running_worker

from windlass import Windlass
from windlass.core.job.state import State
from windlass.worker import slots as worker_slots

HOUR = 3600.0


@pytest.fixture
async def app() -> AsyncIterator[Windlass]:
    app = Windlass("memory:")
    yield app
    await app.aclose()


async def test_an_outcome_is_stored_while_other_jobs_run(
    app: Windlass, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while jobs wait for a slot, which may take as long as a task."""
    monkeypatch.setattr(worker_slots, "MAX_PREFETCH_WAIT", HOUR)
    monkeypatch.setattr(worker_slots, "PREFETCH_SECONDS", 1000.0)  # claim all on any machine
    go = asyncio.Event()

    @app.task
    async def task(slow: bool) -> None:
        if slow:
            await go.wait()

    quick = await app.aenqueue_many([task.new_job(slow=False) for _ in range(50)])
    slow = await app.aenqueue_many([task.new_job(slow=True) for _ in range(5)])
    async with running_worker(app, queues={"default": 2}):
        for job in quick:
            assert (await job.await_end(WAIT_TIMEOUT)).state is State.SUCCEEDED
        slow_states = [(await job.arefresh()).state for job in slow]
        assert slow_states.count(State.RUNNING) > 2  # more than the slots: prefetched jobs, too
        go.set()
        for job in slow:
            assert (await job.await_end(WAIT_TIMEOUT)).state is State.SUCCEEDED
