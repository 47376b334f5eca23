"""Workers that crash at a named point, and the recovery by the next one."""

from __future__ import annotations

import asyncio
import gc
import logging
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from windlass import Context, InvalidArgumentError, State, Task, Windlass
from windlass.testing import Twin, twin


@pytest.fixture
def app() -> Iterator[Windlass]:
    app = Windlass("memory:")
    yield app
    app.close()


@pytest.fixture
def jobs(app: Windlass) -> Iterator[Twin]:
    with twin(app) as made:
        yield made


class RecordedTask:
    """A task of two steps that records which steps ran."""

    def __init__(self, app: Windlass, *, asynchronous: bool) -> None:
        self.ran: list[str] = []
        self.task: Task[[], str] = app.task(self._async() if asynchronous else self._sync())

    def _do(self, step: str) -> str:
        self.ran.append(step)
        return step[0]

    def _async(self) -> Any:
        async def do(step: str) -> str:
            return self._do(step)

        async def film(ctx: Context) -> str:
            ctx.log("begun")
            voice = await ctx.astep("voice", do, "voice")
            return voice + await ctx.astep("render", do, "render")

        return film

    def _sync(self) -> Any:
        def film(ctx: Context) -> str:
            ctx.log("begun")
            voice = ctx.step("voice", self._do, "voice")
            return voice + ctx.step("render", self._do, "render")

        return film


@pytest.fixture(params=[True, False], ids=["async", "sync"])
def film(app: Windlass, request: pytest.FixtureRequest) -> RecordedTask:
    return RecordedTask(app, asynchronous=request.param)


@pytest.mark.parametrize(
    ("point", "state", "ran"),
    [
        ("before-claim", State.QUEUED, "voice render"),
        ("after-claim", State.RUNNING, "voice render"),
        ("before-record", State.RUNNING, "voice voice render"),
        ("after-record", State.RUNNING, "voice render"),
        ("before-step:voice", State.RUNNING, "voice voice render"),
        ("after-step:voice", State.RUNNING, "voice render"),
        ("before-step:render", State.RUNNING, "voice render render"),
        ("after-step:render", State.RUNNING, "voice render"),
        ("before-settle", State.RUNNING, "voice render"),
        ("after-settle", State.SUCCEEDED, "voice render"),
    ],
)
def test_a_worker_crashes_at_the_point_and_another_continues(
    film: RecordedTask, jobs: Twin, point: str, state: State, ran: str
) -> None:
    job = film.task.enqueue()
    with jobs.crash_at(point):
        assert jobs.drain() == {state: 1}
    if state is State.RUNNING:
        assert jobs.drain() == {State.RUNNING: 1}  # the lease of the crashed worker is still valid
        jobs.clock.advance(30)
    jobs.drain()
    assert job.result() == "vr"
    assert " ".join(film.ran) == ran
    assert job.row.crash_count == (state is State.RUNNING)
    assert job.row.retry_count == 0


async def test_a_crash_works_in_an_async_test(app: Windlass, jobs: Twin) -> None:
    film = RecordedTask(app, asynchronous=True)
    job = await film.task.aenqueue()
    with jobs.crash_at("after-step:voice"):
        assert await jobs.adrain() == {State.RUNNING: 1}
    jobs.clock.advance(30)
    await jobs.adrain()
    assert await job.aresult() == "vr"
    assert film.ran == ["voice", "render"]


@pytest.mark.parametrize("how", ["until_empty", "inline"])
def test_with_until_empty_another_worker_continues_at_once(
    film: RecordedTask, jobs: Twin, how: str
) -> None:
    start = jobs.clock.now()
    with jobs.crash_at("after-step:voice"):
        if how == "inline":
            with jobs.inline():
                job = film.task.enqueue()
        else:
            job = film.task.enqueue()
            assert jobs.drain(until_empty=True) == {State.SUCCEEDED: 1}
    assert job.result() == "vr"
    assert film.ran == ["voice", "render"]
    assert job.row.attempt == 2
    assert (jobs.clock.now() - start) / 1e6 == 30


def test_the_nth_time_is_counted_over_workers(film: RecordedTask, jobs: Twin) -> None:
    job = film.task.enqueue()
    with jobs.crash_at("before-settle", nth=2):
        assert jobs.drain() == {State.SUCCEEDED: 1}
        second = film.task.enqueue()
        assert jobs.drain() == {State.RUNNING: 1}
    assert [job.refresh().state, second.refresh().state] == [State.SUCCEEDED, State.RUNNING]


def test_a_job_that_kills_every_worker_fails_at_the_crash_cap(app: Windlass, jobs: Twin) -> None:
    @app.task(crash_cap=2)
    async def killer() -> None:
        pass

    job = killer.enqueue()
    for _ in range(2):
        with jobs.crash_at("before-settle"):
            assert jobs.drain() == {State.RUNNING: 1}
        jobs.clock.advance(30)
    assert jobs.drain() == {State.FAILED: 1}
    error = job.refresh().row.error
    assert error is not None
    assert error.code == "crashed"


def test_a_child_enqueued_before_the_crash_is_enqueued_again(app: Windlass, jobs: Twin) -> None:
    @app.task
    async def child() -> None:
        pass

    @app.task
    async def parent(ctx: Context, once: bool) -> None:
        task = child.options(request_id=f"child-of-{ctx.job.id}") if once else child
        await task.aenqueue()

    parent.enqueue(once=False)
    with jobs.crash_at("after-enqueue"):
        jobs.drain(until_empty=True)
    jobs.assert_enqueued(child, count=2)
    parent.enqueue(once=True)
    with jobs.crash_at("after-enqueue"):
        jobs.drain(until_empty=True)
    jobs.assert_enqueued(child, count=3)
    parent.enqueue(once=False)
    with jobs.crash_at("before-enqueue"):
        jobs.drain(until_empty=True)
    jobs.assert_enqueued(child, count=4)


@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_crashed_worker_writes_nothing_even_in_finally(
    app: Windlass, jobs: Twin, asynchronous: bool
) -> None:
    @app.task
    async def cry() -> None:
        pass

    async def nothing() -> None:
        pass

    async def film(ctx: Context) -> None:
        try:
            await ctx.astep("voice", nothing)
        finally:
            await cry.aenqueue()

    def sync_film(ctx: Context) -> None:
        try:
            ctx.step("voice", lambda: None)
        finally:
            cry.enqueue()

    task = app.task(film) if asynchronous else app.task(sync_film)
    task.enqueue()
    with jobs.crash_at("after-step:voice"):
        assert jobs.drain() == {State.RUNNING: 1}
    jobs.assert_not_enqueued(cry)


def test_all_jobs_of_a_crashed_worker_keep_their_leases(app: Windlass, jobs: Twin) -> None:
    @app.task
    async def waits() -> None:
        await asyncio.Event().wait()

    @app.task
    async def speaks(ctx: Context) -> None:
        await ctx.astep("word", asyncio.sleep, 0)

    waits.enqueue()
    speaks.enqueue()
    with jobs.crash_at("after-step:word"):
        assert jobs.drain(concurrency=2) == {State.RUNNING: 2}


def test_a_point_that_no_worker_reaches_fails_the_test(film: RecordedTask, jobs: Twin) -> None:
    film.task.enqueue()
    with (
        pytest.raises(AssertionError, match=r"reached 'after-step:sound'; .*after-step:voice"),
        jobs.crash_at("after-step:sound"),
    ):
        jobs.drain()
    with (
        pytest.raises(AssertionError, match="did a drain run"),
        jobs.crash_at("after-claim"),
    ):
        pass
    film.task.enqueue()
    assert jobs.drain() == {State.SUCCEEDED: 1}  # no trigger is active


def test_an_error_in_the_block_is_not_hidden(jobs: Twin) -> None:
    with pytest.raises(ZeroDivisionError), jobs.crash_at("after-claim"):
        raise ZeroDivisionError


@pytest.mark.parametrize(
    "point", ["after-lunch", "settle", "after-step:", "after-step", "", "in-claim"]
)
def test_an_unknown_point_is_refused_with_the_known_ones(jobs: Twin, point: str) -> None:
    known = r"claim, record, settle, enqueue or step:NAME"
    with pytest.raises(InvalidArgumentError, match=known), jobs.crash_at(point):
        pass


def test_nth_must_be_at_least_one(jobs: Twin) -> None:
    wrong = pytest.raises(InvalidArgumentError, match="nth must be at least 1")
    with wrong, jobs.crash_at("after-claim", nth=0):
        pass


def test_after_the_block_no_worker_crashes(film: RecordedTask, jobs: Twin) -> None:
    film.task.enqueue()
    with jobs.crash_at("after-claim"):
        jobs.drain()
    jobs.clock.advance(30)
    assert jobs.drain() == {State.SUCCEEDED: 1}


def test_a_simulated_crash_logs_no_warnings(
    film: RecordedTask, jobs: Twin, caplog: pytest.LogCaptureFixture
) -> None:
    film.task.enqueue()
    threads = set(threading.enumerate())
    with caplog.at_level(logging.ERROR, "asyncio"), jobs.crash_at("before-settle"):
        jobs.drain()
        gc.collect()
    assert [record for record in caplog.records if record.name == "asyncio"] == []
    left = [thread.name for thread in set(threading.enumerate()) - threads]
    assert [name for name in left if "keeper" in name] == []
