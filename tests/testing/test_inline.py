"""Inline mode: a job has ended when its enqueue returns."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from windlass import Context, InvalidInput, JobFailedError, State, Windlass, fixed
from windlass.testing import Twin, twin


@pytest.fixture
def app() -> Iterator[Windlass]:
    app = Windlass("memory:")
    yield app
    app.close()


@pytest.fixture
def jobs(app: Windlass) -> Iterator[Twin]:
    with twin(app) as made, made.inline():
        yield made


class SampleTasks:
    """Tasks that fail, wait, and create children."""

    def __init__(self, app: Windlass) -> None:
        @app.task(max_retries=2, backoff=fixed(60))
        def stubborn(ctx: Context, succeeds_in: int) -> int:
            if ctx.attempt < succeeds_in:
                raise OSError("not yet")
            return ctx.attempt

        @app.task
        async def parent(ctx: Context, delay: str) -> list[int]:
            child = await stubborn.options(delay=delay).aenqueue(2)
            ctx.then(stubborn, 3)
            return [ctx.attempt, await child.aresult(timeout=20)]

        @app.task
        def sync_parent() -> int:
            return stubborn.enqueue(2).result(timeout=20)

        self.stubborn, self.parent, self.sync_parent = stubborn, parent, sync_parent


@pytest.fixture
def tasks(app: Windlass) -> SampleTasks:
    return SampleTasks(app)


def test_an_inline_job_has_ended_with_its_retries_when_enqueue_returns(
    tasks: SampleTasks, jobs: Twin
) -> None:
    start = jobs.clock.now()
    job = tasks.stubborn.enqueue(3)
    assert job.state is State.SUCCEEDED
    assert job.result() == 3
    assert (jobs.clock.now() - start) / 1e6 == 120


@pytest.mark.filterwarnings("ignore:this call blocks the running event loop")
async def test_inline_mode_works_for_enqueue_and_aenqueue_in_an_async_test(
    tasks: SampleTasks, jobs: Twin
) -> None:
    assert (await tasks.stubborn.aenqueue(2)).state is State.SUCCEEDED
    with pytest.warns(RuntimeWarning, match="blocks the running event loop"):
        job = tasks.stubborn.enqueue(1)
    assert job.state is State.SUCCEEDED


def test_inline_mode_moves_the_clock_to_a_delayed_job(tasks: SampleTasks, jobs: Twin) -> None:
    start = jobs.clock.now()
    assert tasks.stubborn.options(delay="1d").enqueue(1).result() == 1
    assert (jobs.clock.now() - start) / 1e6 == 86_400


def test_a_failure_raises_only_with_raises(tasks: SampleTasks, jobs: Twin) -> None:
    job = tasks.stubborn.enqueue(9)
    assert job.state is State.FAILED
    with pytest.raises(JobFailedError, match="not yet"):
        job.result()
    with jobs.inline(raises=True), pytest.raises(JobFailedError, match="not yet"):
        tasks.stubborn.enqueue(9)
    assert tasks.stubborn.enqueue(9).state is State.FAILED


def test_inline_mode_refuses_invalid_arguments(tasks: SampleTasks, jobs: Twin) -> None:
    wrong: Any = "many"
    with pytest.raises(ValueError, match="succeeds_in"):
        tasks.stubborn.enqueue(wrong)


def test_an_inline_task_gets_an_ended_child_and_keeps_its_lease(
    tasks: SampleTasks, jobs: Twin
) -> None:
    job = tasks.parent.enqueue("10h")  # far beyond the lease of 30 s
    assert job.result() == [1, 2]
    assert job.row.crash_count == 0
    assert [job.state for job in jobs.enqueued(tasks.stubborn)] == [State.SUCCEEDED] * 2


def test_an_inline_sync_task_gets_an_ended_child(tasks: SampleTasks, jobs: Twin) -> None:
    assert tasks.sync_parent.enqueue().result() == 2


async def test_concurrent_inline_enqueues_all_end(tasks: SampleTasks, jobs: Twin) -> None:
    made = await asyncio.gather(*(tasks.stubborn.aenqueue(n % 3 + 1) for n in range(9)))
    assert {job.state for job in made} == {State.SUCCEEDED}


async def test_inline_mode_waits_for_a_job_claimed_by_another_worker(
    app: Windlass, jobs: Twin
) -> None:
    started, released = asyncio.Event(), asyncio.Event()

    @app.task(queue="first")
    async def first() -> None:
        started.set()
        await released.wait()

    @app.task(queue="second")
    async def second() -> None:
        for _ in range(100):
            await asyncio.sleep(0)

    beside = asyncio.create_task(first.aenqueue())
    await started.wait()  # its worker has a slot for the second, too
    assert (await second.aenqueue()).state is State.SUCCEEDED
    released.set()
    assert (await beside).state is State.SUCCEEDED


def test_a_task_that_advances_the_clock_keeps_its_lease(
    app: Windlass, tasks: SampleTasks, jobs: Twin
) -> None:
    @app.task
    async def slow(ctx: Context) -> int:
        jobs.clock.advance("1h")  # as if the work took that long
        return (await tasks.stubborn.aenqueue(2)).row.attempt

    job = slow.enqueue()
    assert job.result() == 2
    assert job.row.attempt == 1


def test_a_held_job_waits_for_submit_and_drain_in_inline_mode(
    tasks: SampleTasks, jobs: Twin
) -> None:
    job = tasks.stubborn.options(hold=True).enqueue(1)
    assert job.state is State.CREATED
    job.submit()
    assert jobs.drain() == {State.SUCCEEDED: 1}


def test_a_repeated_request_returns_the_ended_job(tasks: SampleTasks, jobs: Twin) -> None:
    first = tasks.stubborn.options(request_id="r").enqueue(1)
    second = tasks.stubborn.options(request_id="r").enqueue(1)
    assert (second.id, second.duplicate, second.state) == (first.id, True, State.SUCCEEDED)


def test_after_the_block_jobs_wait_again(app: Windlass, tasks: SampleTasks) -> None:
    with twin(app) as jobs:
        with jobs.inline():
            assert tasks.stubborn.enqueue(1).state is State.SUCCEEDED
        assert tasks.stubborn.enqueue(1).state is State.QUEUED


def test_a_terminal_error_ends_an_inline_job_at_once(app: Windlass, jobs: Twin) -> None:
    @app.task
    async def picky() -> None:
        raise InvalidInput("no such file")

    assert picky.enqueue().row.attempt == 1
