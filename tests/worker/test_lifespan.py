"""The lifespan: setup before the first job of a worker, cleanup after the last."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.worker.event_waits import WAIT_TIMEOUT
from tests.worker.workers import make_worker, run_burst

from windlass import ConfigurationError, Context, State, Windlass


@pytest.fixture
async def app() -> AsyncIterator[Windlass]:
    app = Windlass("memory:")
    yield app
    await app.aclose()


async def test_the_value_of_the_lifespan_is_the_state_of_every_task(app: Windlass) -> None:
    calls: list[str] = []

    @app.lifespan
    async def life() -> AsyncIterator[dict[str, int]]:
        calls.append("up")
        yield {"model": 7}
        calls.append("down")

    @app.task
    async def of_loop(ctx: Context) -> int:
        calls.append("job")
        return int(ctx.state["model"])

    @app.task
    def of_thread(ctx: Context) -> int:
        return int(ctx.state["model"])

    jobs = [await of_loop.aenqueue(), await of_thread.aenqueue()]
    await run_burst(app)
    assert [await job.aresult() for job in jobs] == [7, 7]
    assert calls == ["up", "job", "down"]


async def test_a_context_manager_may_be_the_lifespan(app: Windlass) -> None:
    @app.lifespan
    @asynccontextmanager
    async def life() -> AsyncIterator[str]:
        yield "pool"

    @app.task
    async def task(ctx: Context) -> str:
        return str(ctx.state)

    job = await task.aenqueue()
    await run_burst(app)
    assert await job.aresult() == "pool"


async def test_without_a_lifespan_the_state_is_none(app: Windlass) -> None:
    @app.task
    async def task(ctx: Context) -> bool:
        return ctx.state is None

    job = await task.aenqueue()
    await run_burst(app)
    assert await job.aresult()


async def test_a_lifespan_that_fails_stops_the_worker_before_it_claims(app: Windlass) -> None:
    @app.lifespan
    async def life() -> AsyncIterator[None]:
        raise OSError("no such model")
        yield

    @app.task
    async def task() -> None: ...

    job = await task.aenqueue()
    with pytest.raises(ConfigurationError) as stopped:
        await run_burst(app)
    message = str(stopped.value)
    assert f"{__file__}:" in message
    assert "failed to start: OSError: no such model" in message
    assert "no job was claimed" in message
    row = (await job.arefresh()).row
    assert (row.state, row.attempt) == (State.QUEUED, 0)


async def test_a_lifespan_that_fails_at_the_end_loses_no_job(app: Windlass) -> None:
    @app.lifespan
    async def life() -> AsyncIterator[None]:
        yield
        raise OSError("still busy")

    @app.task
    async def task() -> int:
        return 1

    job = await task.aenqueue()
    with pytest.raises(ConfigurationError, match="failed to end: OSError: still busy; no job"):
        await run_burst(app)
    assert await job.aresult() == 1


async def test_a_cancelled_worker_leaves_its_lifespan(app: Windlass) -> None:
    up, down = asyncio.Event(), asyncio.Event()

    @app.lifespan
    async def life() -> AsyncIterator[None]:
        up.set()
        try:
            yield
        finally:
            down.set()

    running = asyncio.create_task(make_worker(app).run())
    await asyncio.wait_for(up.wait(), WAIT_TIMEOUT)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert down.is_set()


def test_a_second_lifespan_is_refused_with_both_places() -> None:
    app = Windlass("memory:")

    async def one() -> AsyncIterator[None]:
        yield

    async def two() -> AsyncIterator[None]:
        yield

    app.lifespan(one)
    with pytest.raises(ConfigurationError) as refused:
        app.lifespan(two)
    assert str(refused.value).count(f"{__file__}:") == 2
    app.close()
