"""Queue overview, drain and clear."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from tests.worker.event_waits import WAIT_TIMEOUT
from tests.worker.spy_store import SpyStore
from tests.worker.workers import running_worker

from windlass import Context, InvalidArgumentError, Snooze, Windlass
from windlass.client import Client
from windlass.core.decisions.outcome import Failed, Succeeded
from windlass.core.decisions.transition import ApplyRequest, ApplyResult
from windlass.core.job.retry_policy import Policy
from windlass.core.job.state import State
from windlass.core.query.drain_progress import DrainProgress
from windlass.core.query.job_query import JobQuery
from windlass.store import Store
from windlass.stores import open_store
from windlass.testing import VirtualClock, make_job
from windlass.testing.factories import (
    claim_one,
    enqueue_one,
    get_one,
    make_failure,
    set_paused,
    settle_one,
    start_one,
)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture(params=["memory", "sqlite"])
async def store(
    request: pytest.FixtureRequest, tmp_path: Path, clock: VirtualClock
) -> AsyncIterator[Store]:
    urls = {"memory": "memory:", "sqlite": f"sqlite:///{tmp_path}/jobs.db?durability=off"}
    async with open_store(urls[request.param], clock=clock) as store:
        await store.migrate()
        yield store


async def test_a_queue_has_depth_age_and_rates(store: Store, clock: VirtualClock) -> None:
    for number in range(3):
        await enqueue_one(store, queue="media", delay=3600.0 if number == 2 else 0.0)
    clock.advance(6)
    done = await claim_one(store, "media")
    clock.advance(4)
    await settle_one(store, done, Succeeded())
    gone = await start_one(store, queue="mail", policy=Policy(max_retries=0))
    await settle_one(store, gone, Failed(failure=make_failure()))
    await set_paused(store, ["idle"], paused=True)
    clock.advance(20)

    idle, mail, media = await Client(store).queues()

    assert [one.name for one in (idle, mail, media)] == ["idle", "mail", "media"]
    assert (idle.paused, media.paused) == (True, False)
    assert (media.counts[State.QUEUED], media.counts[State.CREATED]) == (1, 1)
    assert media.oldest_age == 30
    assert (media.rates.mean_wait, media.rates.mean_run) == (6.0, 4.0)
    assert media.rates.succeeded * media.rates.minutes == pytest.approx(1)
    assert mail.rates.failed * mail.rates.minutes == pytest.approx(1)
    assert 5 <= media.rates.minutes <= 6
    assert (idle.rates.started, idle.oldest_age) == (0.0, None)


async def test_attempts_of_ten_minutes_ago_are_not_in_the_rates(
    store: Store, clock: VirtualClock
) -> None:
    done = await start_one(store, queue="media")
    await settle_one(store, done, Succeeded())
    assert [one.name for one in await Client(store).queues()] == ["media"]
    clock.advance(600)
    assert await Client(store).queues() == []


async def test_clear_cancels_waiting_jobs_but_no_running_ones(store: Store) -> None:
    running = await start_one(store, queue="media")
    waiting = [
        await enqueue_one(store, queue="media"),
        await enqueue_one(store, queue="media", delay=60.0),
        await enqueue_one(store, queue="media", hold=True),
    ]
    other = await enqueue_one(store, queue="mail")

    assert await Client(store).clear("media", reason="a mistake") == 3

    rows = [await get_one(store, row.id) for row in waiting]
    assert [(row.state, row.cancel_reason) for row in rows] == [(State.CANCELED, "a mistake")] * 3
    left = [await get_one(store, row.id) for row in (running, other)]
    assert [row.state for row in left] == [State.RUNNING, State.QUEUED]
    assert not left[0].cancel_requested
    assert await Client(store).clear("media") == 0


async def test_clear_does_not_cancel_a_job_claimed_meanwhile(store: Store) -> None:
    job = await enqueue_one(store, queue="media")

    class Racing(SpyStore):
        async def apply(self, requests: Sequence[ApplyRequest]) -> list[ApplyResult]:
            await claim_one(store, "media")
            return await super().apply(requests)

    assert await Client(Racing(store, lambda _: None)).clear("media") == 0
    row = await get_one(store, job.id)
    assert (row.state, row.cancel_requested) == (State.RUNNING, False)


async def test_clear_cancels_any_number_of_jobs(store: Store) -> None:
    for _ in range(3):
        await store.enqueue([make_job(queue="media") for _ in range(700)])
    assert await Client(store).clear("media") == 2100
    page = await store.find(JobQuery(states=frozenset({State.QUEUED})))
    assert not page.rows


async def test_a_drain_ends_when_the_queue_is_empty() -> None:
    app = Windlass("memory:")
    go = asyncio.Event()

    @app.task(queue="media")
    async def first() -> None:
        await go.wait()
        await second.aenqueue()

    @app.task(queue="media")
    async def second() -> None: ...

    jobs = [await first.aenqueue() for _ in range(4)]
    await second.options(hold=True).aenqueue()
    client = app.client()
    polls: list[DrainProgress] = []
    async with asyncio.timeout(WAIT_TIMEOUT), running_worker(app, queues={"media": 2}):
        async for progress in client.drain("media"):
            polls.append(progress)
            if len(polls) == 2:
                assert progress.left == 4
                go.set()
    assert (polls[0].left, polls[-1].left) == (4, 0)
    assert polls[-1].peak >= 4
    assert not any(progress.capped for progress in polls)
    assert [(await job.arefresh()).state for job in jobs] == [State.SUCCEEDED] * 4
    held = (await client.store.insights.stats())["media"].counts
    assert {state: n for state, n in held.items() if n} == {State.CREATED: 1}
    await app.aclose()


async def test_a_drain_waits_for_retrying_jobs() -> None:
    app = Windlass("memory:")

    @app.task
    async def delayed(ctx: Context) -> str:
        if ctx.attempt == 1:
            raise Snooze(0.3)
        return "done"

    job = await delayed.aenqueue()
    async with asyncio.timeout(WAIT_TIMEOUT), running_worker(app):
        async for _ in app.client().drain("default"):
            pass
        assert (await job.arefresh()).state is State.SUCCEEDED
    await app.aclose()


async def test_a_drain_of_an_unknown_queue_ends_at_once(store: Store) -> None:
    polls = [progress async for progress in Client(store).drain("nothing")]
    assert [(progress.left, progress.peak) for progress in polls] == [(0, 0)]
    with pytest.raises(InvalidArgumentError, match="at least one queue"):
        await anext(Client(store).drain())


async def test_a_drain_reports_paused_queues(store: Store) -> None:
    await enqueue_one(store, queue="media")
    await set_paused(store, ["media"], paused=True)
    progress = await anext(Client(store).drain("media", "mail"))
    assert (progress.left, progress.paused) == (1, ("media",))
