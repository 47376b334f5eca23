"""Twins: jobs go to a memory store inside the block, and the app itself does not change."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from windlass import (
    ConfigurationError,
    ConflictError,
    Context,
    NewJob,
    NotFoundError,
    State,
    StoreError,
    Tasks,
    Windlass,
)
from windlass.testing import VirtualClock, twin


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "jobs.db"


@pytest.fixture
def app(file: Path, tmp_path: Path) -> Iterator[Windlass]:
    app = Windlass(f"sqlite:///{file}", data=tmp_path / "data")
    yield app
    app.close()


def double(number: int) -> int:
    return 2 * number


def test_jobs_go_to_the_twin_and_no_file_is_created(app: Windlass, file: Path) -> None:
    task = app.task(double)
    with twin(app) as jobs:
        job = task.enqueue(21)
        assert jobs.drain() == {State.SUCCEEDED: 1}
        assert job.result() == 42
    assert list(file.parent.iterdir()) == []


def test_the_real_store_is_back_after_the_block_with_its_jobs(app: Windlass) -> None:
    task = app.task(double)
    before = task.enqueue(1)
    url = app.url
    with twin(app) as jobs:
        inside = task.enqueue(2)
        assert [job.id for job in jobs.enqueued()] == [inside.id]
        with pytest.raises(NotFoundError):
            before.refresh()
    after = task.enqueue(3)
    assert app.url == url
    assert [app.job(job.id).state for job in (before, after)] == [State.QUEUED, State.QUEUED]
    with pytest.raises(NotFoundError):
        app.job(inside.id)


def test_the_real_store_is_back_after_a_failed_test(app: Windlass) -> None:
    task = app.task(double)
    with pytest.raises(ZeroDivisionError), twin(app):
        raise ZeroDivisionError
    assert app.job(task.enqueue(1).id).state is State.QUEUED


def test_jobs_of_a_task_group_go_to_the_twin(app: Windlass, file: Path) -> None:
    group = Tasks()
    task = group.task(double)
    app.include(group)
    with twin(app) as jobs:
        task.enqueue(1)
        jobs.assert_enqueued(task, number=1)
    assert not file.exists()


async def test_async_code_and_other_threads_enqueue_to_the_twin(app: Windlass) -> None:
    task = app.task(double)
    with twin(app) as jobs:
        await task.aenqueue(1)
        thread = Thread(target=task.enqueue, args=(2,))
        thread.start()
        await asyncio.to_thread(thread.join)
        assert [jobs.arguments(job)["number"] for job in jobs.enqueued(task)] == [1, 2]
        assert await jobs.adrain() == {"succeeded": 2}


async def test_a_twin_is_refused_while_a_worker_runs(app: Windlass) -> None:
    worker = app.worker()
    running = asyncio.create_task(worker.run())
    await asyncio.sleep(0)
    with pytest.raises(ConflictError, match="before the store is replaced"), twin(app):
        pytest.fail("the twin was opened")
    worker.stop()
    await running
    with twin(app):
        pass


async def test_a_worker_still_running_at_the_end_is_an_error(app: Windlass) -> None:
    url = app.url
    block = ExitStack()
    block.enter_context(twin(app))
    worker = app.worker()
    running = asyncio.create_task(worker.run())
    await asyncio.sleep(0)
    with pytest.raises(ConflictError, match="before the block ends"):
        block.close()
    assert app.url == url
    worker.stop()
    await running


def test_a_twin_is_refused_while_a_transaction_is_open(app: Windlass) -> None:
    wrong = pytest.raises(ConflictError, match="end it before the store is replaced")
    with app.transaction(), wrong, twin(app):
        pytest.fail("the twin was opened")


def test_a_transaction_in_a_twin_is_refused(app: Windlass) -> None:
    wrong = pytest.raises(ConfigurationError, match="needs an SQLite store, not memory:")
    with twin(app), wrong, app.transaction():
        pass


def test_code_that_closes_the_app_closes_only_the_twin(app: Windlass) -> None:
    group = Tasks()
    task = group.task(double)
    app.include(group)
    with twin(app):
        app.close()
        with pytest.raises((StoreError, ConfigurationError)):
            task.enqueue(1)
    assert app.job(task.enqueue(2).id).state is State.QUEUED


def test_nested_twins_have_separate_jobs(app: Windlass) -> None:
    task = app.task(double)
    with twin(app) as outer:
        task.enqueue(1)
        with twin(app) as inner:
            task.enqueue(2)
            task.enqueue(3)
        assert len(outer.enqueued()) == 1
        assert len(inner.enqueued()) == 2


def test_a_twin_refuses_to_drain_while_another_store_is_active(app: Windlass) -> None:
    task = app.task(double)
    with twin(app) as outer:
        task.enqueue(1)
        with twin(app), pytest.raises(ConflictError, match="another twin is active"):
            outer.drain()
        assert outer.drain() == {State.SUCCEEDED: 1}
    real = task.enqueue(2)
    with pytest.raises(ConflictError, match="block has ended"):
        outer.drain()
    assert real.refresh().state is State.QUEUED


def test_only_an_app_has_a_twin() -> None:
    wrong: Any = "jobs:app"
    with (
        pytest.raises(ConfigurationError, match="needs a Windlass app, not 'jobs:app'"),
        twin(wrong),
    ):
        pass


# -- lifespan, middleware and workspaces of the app


def test_the_lifespan_runs_for_the_workers_of_the_twin(app: Windlass) -> None:
    @app.lifespan
    async def model() -> AsyncIterator[str]:
        yield "large"

    @app.task
    def name(ctx: Context) -> str:
        return str(ctx.state)

    with twin(app) as jobs:
        job = name.enqueue()
        jobs.drain()
        assert job.result() == "large"


def test_a_given_state_replaces_the_lifespan(app: Windlass) -> None:
    @app.lifespan
    async def model() -> AsyncIterator[str]:
        raise OSError("no model on this machine")
        yield

    @app.task
    def name(ctx: Context) -> str:
        return str(ctx.state)

    with twin(app, state="tiny") as jobs:
        job = name.enqueue()
        jobs.drain()
        assert job.result() == "tiny"
    with twin(app) as jobs:
        name.enqueue()
        with pytest.raises(ConfigurationError, match="no model on this machine"):
            jobs.drain()


def test_middleware_runs_in_the_twin(app: Windlass) -> None:
    @app.middleware
    class Around:
        def enqueue(self, new: NewJob) -> NewJob:
            return replace(new, tags=("seen",))

        async def run(self, ctx: Context, call_next: Any) -> Any:
            return 1 + await call_next()

    task = app.task(double)
    with twin(app) as jobs:
        job = task.enqueue(21)
        jobs.assert_enqueued(task, tags="seen")
        jobs.drain()
        assert job.result() == 43


def test_workspaces_are_deleted_with_the_twin(app: Windlass, tmp_path: Path) -> None:
    places: list[Path] = []

    @app.task(max_retries=0)
    def write(ctx: Context) -> None:
        place = ctx.workspace / "half"
        place.write_text("done")
        places.append(place)
        raise ValueError  # a failed job keeps its workspace

    with twin(app) as jobs:
        write.enqueue()
        assert jobs.drain() == {State.FAILED: 1}
        [place] = places
        assert place.exists()
    assert not place.exists()
    assert not (tmp_path / "data").exists()


def test_the_clock_accepts_duration_texts_and_can_be_passed_in(app: Windlass) -> None:
    clock = VirtualClock()
    start = clock.now()
    with twin(app, clock=clock) as jobs:
        assert jobs.clock is clock
        jobs.clock.advance("1h30m")
        jobs.clock.advance(5)
    assert clock.now() - start == (5400 + 5) * 1_000_000
