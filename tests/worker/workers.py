"""Workers for tests: short intervals, stopped at the end of the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.worker.event_waits import WAIT_TIMEOUT

from windlass import Job, Windlass, Worker, WorkerConfig
from windlass.core.job.row import JobRow
from windlass.store import Store


def config(**values: Any) -> WorkerConfig:
    return WorkerConfig(**{"poll_interval": 0.01, "sweep_interval": 0.01, "grace": 5.0, **values})


def make_worker(app: Windlass, store: Store | None = None, **values: Any) -> Worker:
    own = store or app.client().store.twin()
    return Worker(own, app.tasks, app.codec, config(**values), app.parts)


@asynccontextmanager
async def running_worker(
    app: Windlass, store: Store | None = None, **values: Any
) -> AsyncIterator[Worker]:
    """Run a worker during the block, then stop it."""
    worker = make_worker(app, store, **values)
    running = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        await asyncio.wait_for(running, WAIT_TIMEOUT)


async def run_burst(app: Windlass, store: Store | None = None, **values: Any) -> Worker:
    """Run a worker until its queues are empty."""
    worker = make_worker(app, store, burst=True, **values)
    await asyncio.wait_for(worker.run(), WAIT_TIMEOUT)
    return worker


async def run_to_end(app: Windlass, job: Job[Any], **values: Any) -> JobRow:
    """Run a worker until the job has finished; return its row."""
    async with running_worker(app, **values):
        return (await job.await_end(WAIT_TIMEOUT)).row
