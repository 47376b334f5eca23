"""Drains of a twin: due jobs only, or all jobs with a moving clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import pytest

from windlass import Batch, ConfigurationError, Context, Snooze, State, Windlass, fixed
from windlass.testing import Twin, drain, twin
from windlass.testing.factories import set_paused


@pytest.fixture
def app() -> Iterator[Windlass]:
    app = Windlass("memory:")
    yield app
    app.close()


@pytest.fixture
def jobs(app: Windlass) -> Iterator[Twin]:
    with twin(app) as made:
        yield made


def test_a_delayed_job_waits_until_the_clock_moves(app: Windlass, jobs: Twin) -> None:
    ran: list[str] = []

    @app.task
    def note(what: str) -> None:
        ran.append(what)

    note.enqueue("now")
    note.options(delay="1h").enqueue("later")
    assert jobs.drain() == {State.SUCCEEDED: 1, State.CREATED: 1}
    jobs.clock.advance("59m")
    assert jobs.drain() == {State.CREATED: 1}
    jobs.clock.advance("1m")
    assert jobs.drain() == {State.SUCCEEDED: 1}
    assert ran == ["now", "later"]


def test_until_empty_runs_retries_and_delayed_jobs(app: Windlass, jobs: Twin) -> None:
    @app.task(max_retries=2, backoff=fixed(60))
    async def stubborn(ctx: Context) -> int:
        if ctx.attempt < 3:
            raise OSError("not yet")
        return ctx.attempt

    start = jobs.clock.now()
    job = stubborn.options(delay="1d").enqueue()
    assert jobs.drain(until_empty=True) == {State.SUCCEEDED: 1}
    assert job.result() == 3
    assert (jobs.clock.now() - start) / 1e6 == 86_400 + 2 * 60


def test_without_until_empty_a_retry_waits(app: Windlass, jobs: Twin) -> None:
    @app.task(max_retries=1, backoff=fixed(60))
    async def hopeless() -> None:
        raise OSError("never")

    hopeless.enqueue()
    assert jobs.drain() == {State.RETRYING: 1}
    assert jobs.drain() == {State.RETRYING: 1}
    assert jobs.drain(until_empty=True) == {State.FAILED: 1}
    assert jobs.drain(until_empty=True) == {}


def test_a_drain_leaves_held_paused_and_expired_jobs(app: Windlass, jobs: Twin) -> None:
    @app.task
    async def work() -> None:
        pass

    async def pause(*, paused: bool) -> None:
        await set_paused(app.client().store, ["slow"], paused=paused)

    start = jobs.clock.now()
    held = work.options(hold=True).enqueue()
    never = work.options(hold=True, delay="1h").enqueue()
    work.options(queue="slow").enqueue()
    work.options(queue="slow", delay="1h").enqueue()
    app.sync.call(pause(paused=True))
    assert jobs.drain(until_empty=True) == {State.CREATED: 3, State.QUEUED: 1}
    app.sync.call(pause(paused=False))
    held.submit()
    never.cancel()
    assert jobs.clock.now() == start
    expired = work.options(expires_in="1m").enqueue()
    jobs.clock.advance("1m")
    assert jobs.drain() == {State.SUCCEEDED: 2, State.FAILED: 1, State.CREATED: 1}
    assert expired.refresh().state is State.FAILED


def test_jobs_of_a_queue_run_one_at_a_time_by_priority(app: Windlass, jobs: Twin) -> None:
    running = 0
    order: list[int] = []

    @app.task
    async def work(number: int) -> None:
        nonlocal running
        running += 1
        assert running == 1
        await asyncio.sleep(0)
        order.append(number)
        running -= 1

    for number in (1, 3, 2):
        work.options(priority=number).enqueue(number)
    assert jobs.drain() == {State.SUCCEEDED: 3}
    assert order == [3, 2, 1]


async def test_with_concurrency_a_job_may_wait_for_another(app: Windlass, jobs: Twin) -> None:
    barrier = asyncio.Barrier(3)

    @app.task(timeout=20)
    async def meet() -> None:
        await barrier.wait()

    for _ in range(3):
        await meet.aenqueue()
    assert await jobs.adrain(concurrency=3) == {State.SUCCEEDED: 3}


async def test_async_tasks_run_on_the_loop_of_the_test(app: Windlass, jobs: Twin) -> None:
    seen: list[asyncio.AbstractEventLoop] = []

    @app.task
    async def look() -> None:
        seen.append(asyncio.get_running_loop())

    await look.aenqueue()
    await jobs.adrain()
    assert seen == [asyncio.get_running_loop()]


def test_jobs_enqueued_by_tasks_run_in_any_queue(app: Windlass, jobs: Twin) -> None:
    @app.task
    def leaf(number: int) -> None:
        pass

    @app.task
    def root(ctx: Context) -> None:
        leaf.options(queue="unheard-of").enqueue(1)
        ctx.enqueue(leaf, 2)
        ctx.then(leaf, 3)

    root.enqueue()
    assert jobs.drain() == {State.SUCCEEDED: 4}
    jobs.assert_enqueued(leaf, count=3)


def test_the_lifespan_runs_once_per_drain_and_its_failure_is_raised(app: Windlass) -> None:
    lives: list[str] = []

    @app.lifespan
    async def life() -> AsyncIterator[None]:
        lives.append("begun")
        yield
        lives.append("over")
        if len(lives) > 2:
            raise OSError("the pool leaks")

    @app.task(backoff=fixed(5))
    def flaky(ctx: Context) -> None:
        if ctx.attempt < 3:
            raise OSError

    with twin(app) as jobs:
        flaky.enqueue()
        assert jobs.drain(until_empty=True) == {State.SUCCEEDED: 1}
        assert lives == ["begun", "over"]
        flaky.enqueue()
        with pytest.raises(ConfigurationError, match="the pool leaks"):
            jobs.drain()


def test_a_drain_without_jobs_starts_no_worker(app: Windlass, jobs: Twin) -> None:
    @app.lifespan
    async def life() -> AsyncIterator[None]:
        raise AssertionError("a worker was started")
        yield

    assert jobs.drain(until_empty=True) == {}


@pytest.mark.parametrize("how", ["snoozes", "enqueues itself"])
def test_a_drain_that_never_ends_names_the_tasks(
    app: Windlass, jobs: Twin, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(drain, "MAX_ATTEMPTS", 50)

    @app.task(name="perpetual")
    async def perpetual() -> None:
        if how == "snoozes":
            raise Snooze(60)
        await perpetual.aenqueue()

    perpetual.enqueue()
    with pytest.raises(AssertionError, match=r"50 attempts.*unfinished tasks: perpetual"):
        jobs.drain(until_empty=True)


def test_a_drain_prunes_no_finished_jobs(app: Windlass, jobs: Twin) -> None:
    @app.task
    async def work() -> int:
        return 1

    first = work.enqueue()
    jobs.drain()
    jobs.clock.advance("400d")
    work.enqueue()
    jobs.drain()
    assert first.result() == 1


async def test_a_cancelled_drain_releases_its_jobs(app: Windlass, jobs: Twin) -> None:
    started = asyncio.Event()

    @app.task
    async def endless() -> None:
        started.set()
        await asyncio.Event().wait()

    job = await endless.aenqueue()
    running = asyncio.create_task(jobs.adrain())
    await started.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await job.arefresh()
    assert job.state is State.QUEUED
    assert job.row.retry_count == 0


@dataclass
class Page:
    number: int


async def test_a_drain_does_not_wait_for_more_jobs_of_a_batch() -> None:
    app = Windlass("memory:")
    sizes: list[int] = []

    @app.task(batch=4, wait="1h", args=Page, backoff=fixed(60))
    async def index(batch: Batch[Page, int]) -> None:
        sizes.append(len(batch))
        for page in batch:
            if page.args.number == 5 and page.ctx.attempt == 1:
                page.fail(ValueError("once"))
            else:
                page.succeed(page.args.number)

    with twin(app) as jobs:
        await app.aenqueue_many([index.new_job(number) for number in range(6)])
        assert await jobs.adrain() == {State.SUCCEEDED: 5, State.RETRYING: 1}
        assert sizes == [4, 2]
        assert await jobs.adrain(until_empty=True) == {State.SUCCEEDED: 1}
        assert sizes == [4, 2, 1]
        with jobs.inline():
            job = await index.aenqueue(7)
            assert await job.aresult() == 7
    await app.aclose()
