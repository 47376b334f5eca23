"""Batch tasks and the clearing of queues on PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from tests.worker.event_waits import WAIT_TIMEOUT
from tests.worker.workers import run_burst

from windlass import Batch, Windlass
from windlass.core.job.state import State


@dataclass
class Page:
    number: int


@pytest.fixture
async def app(postgres_url: str) -> AsyncIterator[Windlass]:
    app = Windlass(postgres_url)
    yield app
    await app.aclose()


async def test_a_batch_task_settles_each_of_its_jobs(app: Windlass) -> None:
    sizes: list[int] = []

    @app.task(batch=40, args=Page, max_retries=0)
    async def index(batch: Batch[Page, int]) -> None:
        sizes.append(len(batch))
        for page in batch:
            if page.args.number % 10:
                page.succeed(page.args.number)
            else:
                page.fail(ValueError("ten"))

    jobs = await app.aenqueue_many([index.new_job(number) for number in range(100)])
    await run_burst(app)
    assert (sum(sizes), max(sizes)) == (100, 40)
    states = [(await job.arefresh()).state for job in jobs]
    assert states.count(State.FAILED) == 10
    assert await jobs[99].aresult(WAIT_TIMEOUT) == 99

    [queue] = await app.client().queues()
    assert queue.rates.started * queue.rates.minutes == pytest.approx(100)
    assert queue.rates.failed * queue.rates.minutes == pytest.approx(10)


async def test_clear_cancels_all_waiting_jobs(app: Windlass) -> None:
    @app.task
    async def task() -> None: ...

    client = app.client()
    jobs = await app.aenqueue_many([task.new_job() for _ in range(20)])
    jobs += [await task.options(delay="1h").aenqueue(), await task.options(hold=True).aenqueue()]
    progress = await anext(client.drain("default"))
    assert (progress.left, progress.created) == (20, 2)
    assert await client.clear("default", reason="a mistake") == 22
    rows = [(await job.arefresh()).row for job in jobs]
    assert {(row.state, row.cancel_reason) for row in rows} == {(State.CANCELED, "a mistake")}
    assert [progress.left async for progress in client.drain("default")] == [0]
