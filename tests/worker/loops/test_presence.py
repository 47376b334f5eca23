"""The presence record of a worker, and the diagnoses that clients derive from it."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeVar
from uuid import UUID

import pytest
from tests.worker.event_waits import WAIT_TIMEOUT, eventually, is_running, wait_for_event
from tests.worker.spy_store import SpyStore
from tests.worker.workers import running_worker

from windlass import Windlass, WorkerConfig
from windlass.client import Client
from windlass.core.clock import SECOND
from windlass.core.diagnosis import ReasonCode
from windlass.core.errors import NotFoundError, StoreUnavailableError
from windlass.core.ids import uuid7
from windlass.core.job.lease import Claim
from windlass.core.job.row import JobRow
from windlass.core.versioned_record import Put, PutResult
from windlass.insights.observations import COUNT_AHEAD
from windlass.store import Store
from windlass.stores.memory import MemoryStore
from windlass.testing import VirtualClock
from windlass.testing.factories import enqueue_one, make_job, set_paused, start_one
from windlass.worker.loops.presence import Presence

T = TypeVar("T")
CONFIG = WorkerConfig(name="w-1", queues={"default": 2, "media": 1})


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def store(clock: VirtualClock) -> AsyncIterator[MemoryStore]:
    async with MemoryStore(clock=clock) as store:
        yield store


def make_presence(
    store: Store, interval: float = 10.0, last_claim: Callable[[], float | None] = lambda: None
) -> Presence:
    app = Windlass("memory:")

    @app.task(name="new", aliases=("old",))
    def task() -> None: ...

    config = replace(CONFIG, presence_interval=interval)
    return Presence(store, app.tasks, config, running=lambda: 3, last_claim=last_claim)


async def test_a_running_worker_publishes_its_presence_record(
    store: MemoryStore, clock: VirtualClock
) -> None:
    presence = make_presence(store)
    await presence.publish()
    started = clock.now()
    clock.advance(5)
    await presence.publish()
    [worker] = await Client(store).workers()
    assert (worker.name, worker.pid, worker.running) == ("w-1", os.getpid(), 3)
    assert (worker.started_at, worker.seen_at) == (started, clock.now())
    assert (dict(worker.queues), worker.tasks) == ({"default": 2, "media": 1}, ("new", "old"))
    assert worker.last_claim_at is None
    assert worker.version


async def test_the_last_claim_is_in_store_time(store: MemoryStore, clock: VirtualClock) -> None:
    claimed = asyncio.get_running_loop().time() - 60
    record = await make_presence(store, last_claim=lambda: claimed).publish()
    assert record.last_claim_at is not None
    age = (clock.now() - record.last_claim_at) / SECOND
    assert 60 <= age < 60 + WAIT_TIMEOUT


async def test_the_record_of_a_dead_worker_expires_after_three_intervals(
    store: MemoryStore, clock: VirtualClock
) -> None:
    await make_presence(store).publish()
    clock.advance(29)
    assert len(await Client(store).workers()) == 1
    clock.advance(2)
    assert await Client(store).workers() == []


async def test_a_stopped_worker_deletes_its_record(store: MemoryStore) -> None:
    published = asyncio.Event()

    class PutNotifier(SpyStore):
        async def put_records(self, puts: Sequence[Put]) -> list[PutResult]:
            results = await super().put_records(puts)
            published.set()
            return results

    running = asyncio.create_task(make_presence(PutNotifier(store)).run())
    await asyncio.wait_for(published.wait(), WAIT_TIMEOUT)
    assert len(await Client(store).workers()) == 1
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await Client(store).workers() == []


async def test_a_store_outage_logs_one_warning_and_does_not_end_the_loop(
    store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    calls = 0
    back = asyncio.Event()

    def on_call(verb: str) -> None:
        nonlocal calls
        if verb == "ping":
            calls += 1
            if calls <= 3:
                raise StoreUnavailableError("unavailable")
        if verb == "put_records":
            back.set()

    running = asyncio.create_task(make_presence(SpyStore(store, on_call), interval=0.001).run())
    with caplog.at_level(logging.WARNING):
        await asyncio.wait_for(back.wait(), WAIT_TIMEOUT)
    running.cancel()
    await asyncio.wait({running})
    assert [record.message for record in caplog.records] == [
        "Updating worker presence failed: unavailable"
    ]


async def test_a_hanging_store_does_not_delay_the_stop(
    store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("windlass.worker.loops.presence.DELETE_TIMEOUT", 0.01)

    class HangingDelete(SpyStore):
        async def delete_records(self, kind: str, keys: Sequence[str]) -> None:
            await asyncio.Event().wait()

    presence = make_presence(HangingDelete(store))
    running = asyncio.create_task(presence.run())
    await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, WAIT_TIMEOUT)


# -- diagnosis and readiness


async def reasons(store: Store, job_id: UUID) -> list[ReasonCode]:
    return [reason.code for reason in (await Client(store).why(job_id)).reasons]


async def test_why_reports_missing_workers_pauses_and_queue_position(store: MemoryStore) -> None:
    job = await enqueue_one(store, task="new")
    assert await reasons(store, job.id) == [ReasonCode.NO_WORKER]
    await make_presence(store).publish()
    assert await reasons(store, job.id) == [ReasonCode.READY]
    await enqueue_one(store, task="new", priority=1)
    await enqueue_one(store, task="new", priority=-1)
    await enqueue_one(store, task="new", queue="media")
    assert await reasons(store, job.id) == [ReasonCode.BEHIND]
    assert "1 job is ahead" in str(await Client(store).why(job.id))
    await set_paused(store, ["default"], paused=True)
    assert await reasons(store, job.id) == [ReasonCode.PAUSED, ReasonCode.BEHIND]


async def test_why_counts_the_jobs_ahead_on_all_pages_up_to_a_limit(store: MemoryStore) -> None:
    await make_presence(store).publish()
    await store.enqueue([make_job(task="new") for _ in range(COUNT_AHEAD - 1)])
    last = await enqueue_one(store, task="new")
    assert f"{COUNT_AHEAD - 1} jobs are ahead" in str(await Client(store).why(last.id))
    await enqueue_one(store, task="new")
    assert f"{COUNT_AHEAD + 1} or more jobs are in its queue" in str(
        await Client(store).why(last.id)
    )


async def test_why_reports_busy_slots_and_a_running_job(store: MemoryStore) -> None:
    await make_presence(store).publish()
    running = await start_one(store, task="new", queue="media")
    job = await enqueue_one(store, task="new", queue="media")
    assert await reasons(store, running.id) == [ReasonCode.RUNNING]
    assert await reasons(store, job.id) == [ReasonCode.BUSY]


async def test_why_of_an_unknown_job_raises_not_found(store: MemoryStore) -> None:
    with pytest.raises(NotFoundError):
        await Client(store).why(uuid7())


def test_a_job_handle_explains_why_without_an_event_loop() -> None:
    app = Windlass("memory:")

    @app.task
    def task() -> None: ...

    try:
        assert task.options(hold=True).enqueue().why().reasons[0].code is ReasonCode.HELD
    finally:
        app.close()


class PausableClaims(SpyStore):
    """Blocks each claim while `may_claim` is not set; other calls are not affected."""

    def __init__(self, store: Store, may_claim: asyncio.Event) -> None:
        super().__init__(store)
        self._may_claim = may_claim

    def wrap(self, store: Store) -> PausableClaims:
        return PausableClaims(store, self._may_claim)

    async def claim(self, claim: Claim) -> list[JobRow]:
        await self._may_claim.wait()
        return await super().claim(claim)


async def test_a_worker_that_stopped_claiming_is_unresponsive_and_not_ready() -> None:
    app = Windlass("memory:")

    @app.task
    async def send() -> None: ...

    may_claim = asyncio.Event()
    may_claim.set()
    client = app.client()
    store = PausableClaims(client.store.twin(), may_claim)
    async with running_worker(app, store, presence_interval=0.05, name="w-1") as worker:
        await (await send.aenqueue()).await_end(WAIT_TIMEOUT)
        assert (await worker.ready()).ready
        assert (await client.readiness()).ready
        may_claim.clear()
        job = await send.aenqueue()

        async def unresponsive() -> bool:
            return [record.unresponsive for record in await client.workers()] == [True]

        await eventually(unresponsive)
        [problem] = (await worker.ready()).problems
        assert "worker w-1 (pid" in problem
        assert "is unresponsive: 10 free slots, but no jobs fetched for" in problem
        assert (await client.readiness()).problems[0].startswith("worker w-1")
        assert (await client.readiness(host="elsewhere")).ready
        why = await job.awhy()
        assert [reason.code for reason in why.reasons] == [ReasonCode.UNRESPONSIVE]
        may_claim.set()
        await job.await_end(WAIT_TIMEOUT)
        assert (await worker.ready()).ready
    await app.aclose()


async def test_a_worker_with_busy_slots_is_not_unresponsive(
    store: MemoryStore, clock: VirtualClock
) -> None:
    free = 0
    long_ago = asyncio.get_running_loop().time() - 3600
    app = Windlass("memory:")
    presence = Presence(
        store, app.tasks, CONFIG, running=lambda: 3, last_claim=lambda: long_ago, free=lambda: free
    )
    assert not (await presence.snapshot()).unresponsive
    clock.advance(60)
    free = 1  # a slot became free just now, and the next claim follows
    assert not (await presence.snapshot()).unresponsive
    clock.advance(60)
    assert (await presence.snapshot()).unresponsive
    await app.aclose()


async def test_a_worker_that_stops_or_cannot_reach_its_store_is_not_ready() -> None:
    app = Windlass("memory:")
    go = asyncio.Event()

    @app.task
    async def hold() -> None:
        await go.wait()

    unavailable = False

    def on_call(verb: str) -> None:
        if unavailable and verb == "ping":
            raise StoreUnavailableError("unavailable")

    job = await hold.aenqueue()
    async with running_worker(app, SpyStore(app.client().store.twin(), on_call)) as worker:
        await wait_for_event(job, is_running)
        unavailable = True
        assert (await worker.ready()).problems == ("the store cannot be reached: unavailable",)
        unavailable = False
        worker.stop()
        [problem] = (await worker.ready()).problems
        assert problem.endswith("is shutting down and claims no more jobs")
        go.set()
    await app.aclose()


async def test_a_store_that_does_not_respond_in_time_is_not_ready() -> None:
    class UnansweredPing(SpyStore):
        async def around(self, verb: str, call: Callable[[], Awaitable[T]]) -> T:
            if verb == "ping":
                await asyncio.Event().wait()
            return await call()

    client = Client(UnansweredPing(MemoryStore()))
    ready = await client.readiness(timeout=0.01)
    assert ready.problems == ("the store cannot be reached: no answer within 0.01 s",)
    await client.store.close()
