"""A stop has an end, whatever tasks, threads and the store do about it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import pytest
from tests.worker.build import PATIENCE, Spy, make_worker

from windlass import Context, Windlass
from windlass.core.errors import StoreUnavailableError
from windlass.core.state import State


@pytest.fixture
async def app() -> AsyncIterator[Windlass]:
    app = Windlass("memory:")
    yield app
    await app.aclose()


async def test_a_task_that_will_not_end_is_left_to_its_lease(
    app: Windlass, caplog: pytest.LogCaptureFixture
) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    @app.task
    async def stubborn() -> None:
        begun.set()
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue

    job = await stubborn.aenqueue()
    worker = make_worker(app, grace=0.0, release=0.1)
    running = asyncio.create_task(worker.run())
    await begun.wait()
    worker.stop()
    await asyncio.wait_for(running, PATIENCE)
    assert (await job.arefresh()).state is State.RUNNING
    assert f"left to their leases, for they did not let go: {job.id}" in caplog.text
    go.set()


async def test_a_thread_that_does_not_return_holds_up_nothing_for_long(app: Windlass) -> None:
    begun, go = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    @app.task
    def busy(ctx: Context) -> None:
        loop.call_soon_threadsafe(begun.set)
        go.wait()

    job = await busy.aenqueue()
    worker = make_worker(app, grace=0.0, release=0.1)
    running = asyncio.create_task(worker.run())
    await begun.wait()
    worker.stop()
    await asyncio.wait_for(running, PATIENCE)
    assert (await job.arefresh()).state is State.RUNNING
    go.set()


async def test_a_store_that_is_away_does_not_hold_up_a_stop(app: Windlass) -> None:
    away = False
    begun = asyncio.Event()

    def look(verb: str) -> None:
        if away and verb != "close":
            raise StoreUnavailableError("away")

    @app.task
    async def task() -> None:
        begun.set()
        await asyncio.Event().wait()

    job = await task.aenqueue()
    worker = make_worker(app, Spy(app.client().store.twin(), look), grace=0.0, release=0.1)
    running = asyncio.create_task(worker.run())
    await begun.wait()
    away = True
    worker.stop()
    await asyncio.wait_for(running, PATIENCE)
    assert (await job.arefresh()).state is State.RUNNING  # nobody could be told


async def test_a_worker_that_is_cancelled_again_and_again_leaves_nothing_behind(
    app: Windlass,
) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    @app.task
    async def slow_to_end() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await go.wait()

    job = await slow_to_end.aenqueue()
    before = asyncio.all_tasks()
    running = asyncio.create_task(make_worker(app).run())
    await begun.wait()
    for _ in range(3):
        running.cancel()
        await asyncio.sleep(0)
    go.set()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(asyncio.shield(running), PATIENCE)
    assert (await job.arefresh()).state is State.QUEUED  # given back, not left to its lease
    assert asyncio.all_tasks() == before
    assert not [thread for thread in threading.enumerate() if thread.name == "windlass-keeper"]
