"""Each tick of a schedule becomes one job, also with many tickers and after crashes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from tests.worker.event_waits import WAIT_TIMEOUT, eventually
from tests.worker.spy_store import SpyStore
from tests.worker.workers import running_worker

from windlass import NewJob, Windlass
from windlass.core.clock import SECOND, to_datetime
from windlass.core.decisions.outcome import Succeeded
from windlass.core.errors import StoreUnavailableError
from windlass.core.job.row import JobRow
from windlass.core.query.job_query import JobQuery
from windlass.core.schedule import MARK, SCHEDULE, Schedule, start_schedule
from windlass.core.versioned_record import Entry, Put, PutResult
from windlass.records.schedule_records import ScheduleRecords, make_schedule
from windlass.store import Store
from windlass.stores.memory import MemoryStore
from windlass.testing import VirtualClock, make_job
from windlass.testing.factories import claim_one, get_one, settle_one
from windlass.worker.loops import ticker as module
from windlass.worker.loops.ticker import RELOAD_INTERVAL, Ticker


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()  # 2026-01-01T00:00:00Z


@pytest.fixture
async def store(clock: VirtualClock) -> AsyncIterator[MemoryStore]:
    async with MemoryStore(clock=clock) as store:
        yield store


async def add(store: Store, name: str = "often", **values: Any) -> Schedule:
    timing = {"every": "1m"} if "cron" not in values and "every" not in values else {}
    made = make_schedule(name, values.pop("job", make_job(task="report")), **{**timing, **values})
    await ScheduleRecords(store).add(made)
    return made


async def jobs(store: Store) -> list[JobRow]:
    """Return all jobs, oldest first."""
    return [*(await store.find(JobQuery(limit=1000))).rows][::-1]


async def ticks(store: Store) -> list[str]:
    return [row.headers["schedule-tick"] for row in await jobs(store)]


# -- cost and wait times


async def test_a_ticker_without_schedules_costs_one_read(store: MemoryStore) -> None:
    verbs: list[str] = []
    assert await Ticker(SpyStore(store, verbs.append)).once() == RELOAD_INTERVAL
    assert verbs == ["list_records"]


async def test_between_ticks_only_schedules_and_clock_are_read(
    store: MemoryStore, clock: VirtualClock
) -> None:
    await add(store)
    verbs: list[str] = []
    ticker = Ticker(SpyStore(store, verbs.append))
    await ticker.once()
    verbs.clear()
    clock.advance(30)
    assert await ticker.once() == RELOAD_INTERVAL
    assert set(verbs) == {"list_records", "ping"}


async def test_the_ticker_waits_for_the_next_tick_or_the_reload_interval(
    store: MemoryStore, clock: VirtualClock
) -> None:
    await add(store)
    ticker = Ticker(store)
    assert await ticker.once() == RELOAD_INTERVAL
    clock.advance(58)
    assert await ticker.once() == 2.0
    clock.advance(2)
    assert await ticker.once() == RELOAD_INTERVAL
    assert await ticks(store) == ["2026-01-01T00:01:00Z"]


async def test_a_wait_has_a_minimum_to_avoid_spinning(
    store: MemoryStore, clock: VirtualClock
) -> None:
    await add(store)
    clock.advance(timedelta(seconds=59, microseconds=999_999))
    assert await Ticker(store).once() == module.MIN_WAIT


# -- one job for each tick


async def test_a_tick_becomes_a_job_that_names_its_tick(
    store: MemoryStore, clock: VirtualClock
) -> None:
    await add(store, job=make_job(task="report", payload=b'{"a":1}', queue="q", priority=3))
    clock.advance(61)
    await Ticker(store).once()
    [row] = await jobs(store)
    assert (row.task, row.payload, row.queue, row.priority) == ("report", b'{"a":1}', "q", 3)
    assert row.headers == {"schedule": "often", "schedule-tick": "2026-01-01T00:01:00Z"}


async def test_many_concurrent_tickers_enqueue_one_job(
    store: MemoryStore, clock: VirtualClock
) -> None:
    await add(store)
    tickers = [Ticker(store.twin()) for _ in range(8)]
    for _ in range(3):
        clock.advance(60)
        await asyncio.gather(*(ticker.once() for ticker in tickers))
    assert len(await ticks(store)) == 3


async def test_a_crash_between_the_enqueue_and_the_mark_repeats_no_job(
    store: MemoryStore, clock: VirtualClock
) -> None:
    def fail_put(verb: str) -> None:
        if verb == "put_records":
            raise StoreUnavailableError("killed")

    await add(store)
    clock.advance(60)
    with pytest.raises(StoreUnavailableError):
        await Ticker(SpyStore(store, fail_put)).once()
    assert len(await ticks(store)) == 1
    await Ticker(store).once()
    assert len(await ticks(store)) == 1
    [entry] = await store.list_records(MARK)
    assert entry.version == 1


async def test_a_tick_whose_job_was_deleted_is_not_enqueued_again(
    store: MemoryStore, clock: VirtualClock
) -> None:
    await add(store)
    clock.advance(60)
    await Ticker(store).once()
    row = await claim_one(store)
    await settle_one(store, row, Succeeded())
    await store.delete([row.id])
    await Ticker(store).once()
    assert await jobs(store) == []


async def test_a_ticker_that_loses_a_mark_reads_again_at_once(
    store: MemoryStore, clock: VirtualClock
) -> None:
    class SlowerThanAnother(SpyStore):
        async def put_records(self, puts: Sequence[Put]) -> list[PutResult]:
            await Ticker(store).once()
            clock.advance(120)
            return await super().put_records([replace(put, value=b"{}") for put in puts])

    await add(store, missed="all")
    clock.advance(60)
    slow = Ticker(SlowerThanAnother(store))
    assert await slow.once() == 0.0
    assert len(await ticks(store)) == 1
    await Ticker(store).once()
    assert len(await ticks(store)) == 3


async def test_a_mark_is_read_again_after_its_maximum_age(
    store: MemoryStore, clock: VirtualClock
) -> None:
    now = 0.0

    class DelayedRead(SpyStore):
        async def get_records(self, kind: str, keys: Sequence[str]) -> list[Entry | None]:
            nonlocal now
            found = await super().get_records(kind, keys)
            if now == 0.0:
                now += (
                    module.MARK_MAX_AGE + 1
                )  # meanwhile another ticker enqueues the job, and it is run and deleted
                await Ticker(store).once()
                row = await claim_one(store)
                await settle_one(store, row, Succeeded())
                await store.delete([row.id])
            return found

    await add(store)
    clock.advance(60)
    ticker = Ticker(DelayedRead(store), clock=lambda: now)
    assert await ticker.once() == 0.0
    assert await ticker.once() == RELOAD_INTERVAL
    assert await jobs(store) == []


async def test_a_clock_set_back_repeats_no_tick_and_stops_no_schedule(
    store: MemoryStore, clock: VirtualClock
) -> None:
    await add(store, missed="skip")
    ticker = Ticker(store)
    clock.advance("10h")
    await ticker.once()  # the wrong clock is ten hours ahead
    clock.advance(-36_000.0 + 60)
    await ticker.once()
    clock.advance(-30)
    await ticker.once()
    clock.advance(90)
    await ticker.once()
    assert await ticks(store) == ["2026-01-01T10:00:00Z"], (
        "the mark is at 10:00: ticks before it are done"
    )


async def test_before_the_first_tick_a_clock_set_back_moves_the_next_tick(
    store: MemoryStore, clock: VirtualClock
) -> None:
    await add(store, cron="30 * * * *", missed="skip")
    ticker = Ticker(store)
    clock.advance("10h")
    await ticker.once()
    clock.advance(-36_000.0 + 1800)
    await ticker.once()
    assert await ticks(store) == ["2026-01-01T00:30:00Z"]


# -- missed ticks


@pytest.mark.parametrize(
    ("missed", "made"),
    [("skip", []), ("last", ["03"]), ("all", ["01", "02", "03"])],
)
async def test_missed_ticks_are_caught_up_by_policy(
    store: MemoryStore, clock: VirtualClock, missed: str, made: list[str]
) -> None:
    await add(store, every="1h", missed=missed)
    clock.advance("3h30m")
    await Ticker(store).once()
    assert await ticks(store) == [f"2026-01-01T{hour}:00:00Z" for hour in made]


async def test_a_short_restart_misses_no_tick_under_any_policy(
    store: MemoryStore, clock: VirtualClock
) -> None:
    await add(store, every="10s", missed="skip")
    clock.advance(45)
    await Ticker(store).once()
    assert len(await ticks(store)) == 4


async def test_many_missed_ticks_are_enqueued_in_batches_without_a_wait(
    store: MemoryStore, clock: VirtualClock
) -> None:
    await add(store, every="1s", missed="all")
    clock.advance(250)
    ticker = Ticker(store)
    assert [await ticker.once() for _ in range(3)] == [0.0, 0.0, 1.0]
    assert len(await ticks(store)) == 250


async def test_ticks_during_a_pause_are_skipped(store: MemoryStore, clock: VirtualClock) -> None:
    await add(store, every="1h", missed="all")
    ticker, records = Ticker(store), ScheduleRecords(store)
    await ticker.once()
    await records.pause("often")
    clock.advance("5h30m")
    assert await ticker.once() == RELOAD_INTERVAL
    await records.pause("often", paused=False)
    await ticker.once()
    assert await ticks(store) == []
    clock.advance("30m")
    await ticker.once()
    assert await ticks(store) == ["2026-01-01T06:00:00Z"]


# -- an invalid schedule among others


async def test_an_undecodable_schedule_delays_no_other(
    store: MemoryStore, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    made = await add(store)
    unknown_zone = replace(
        start_schedule(made, clock.now()), cron="* * * * *", every=None, tz="Mars/Olympus"
    )
    await store.put_records(
        [
            Put(kind=SCHEDULE, key="a", value=b'{"from":"the future"}'),
            Put(kind=SCHEDULE, key="z", value=unknown_zone.encode()),
        ]
    )
    ticker = Ticker(store)
    clock.advance(60)
    await ticker.once()
    await ticker.once()
    assert len(await ticks(store)) == 1
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 2, "each warning once, not at every reload"
    assert messages[1] == (
        "schedule 'z' is skipped by this worker: unknown time zone 'Mars/Olympus'; "
        'write one such as "Europe/Berlin"'
    )


async def test_an_undecodable_mark_delays_no_other_schedule(
    store: MemoryStore, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    made = await add(store, "bad")
    await add(store, "good")
    await store.put_records([Put(kind=MARK, key=str(made.id), value=b"?")])
    ticker = Ticker(store)
    clock.advance(60)
    await ticker.once()
    await ticker.once()
    assert [row.headers["schedule"] for row in await jobs(store)] == ["good"]
    assert caplog.text.count("schedule 'bad' is broken; no ticks until it is changed") == 1


async def test_the_list_shows_all_decodable_schedules(
    store: MemoryStore, clock: VirtualClock
) -> None:
    made = await add(store)
    far = replace(
        start_schedule(made, clock.now()), cron="* * * * *", every=None, tz="Mars/Olympus"
    )
    await store.put_records(
        [
            Put(kind=SCHEDULE, key="a", value=b'{"from":"the future"}'),
            Put(kind=SCHEDULE, key="z", value=replace(far, name="z").encode()),
        ]
    )
    often, elsewhere = await ScheduleRecords(store).list()
    assert (often.name, elsewhere.name, elsewhere.next_tick) == ("often", "z", None)


async def test_a_refused_job_is_logged_and_stops_no_schedule(
    store: MemoryStore, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    made = await add(store)
    bad = start_schedule(
        replace(made, name="bad", job=replace(made.job, queue="q" * 500)), clock.now()
    )
    await store.put_records([Put(kind=SCHEDULE, key="bad", value=bad.encode())])
    ticker = Ticker(store)
    clock.advance(60)
    assert await ticker.once() == RELOAD_INTERVAL
    assert len(await ticks(store)) == 1
    [message] = [
        record.getMessage() for record in caplog.records if record.levelno == logging.ERROR
    ]
    assert "schedule 'bad': job refused: queue has 500 characters" in message


async def test_middleware_sees_each_job_and_cannot_change_its_id(
    store: MemoryStore, clock: VirtualClock
) -> None:
    def add_tag(new: NewJob) -> NewJob:
        return replace(new, tags=("seen",), id=make_job().id)

    await add(store)
    clock.advance(60)
    await asyncio.gather(*(Ticker(store, prepare=add_tag).once() for _ in range(3)))
    [row] = await jobs(store)
    assert row.tags == ("seen",)


async def test_middleware_that_raises_skips_one_tick(
    store: MemoryStore, clock: VirtualClock, caplog: pytest.LogCaptureFixture
) -> None:
    def reject_bad(new: NewJob) -> NewJob:
        if new.headers["schedule"] == "bad":
            raise ValueError("not this one")
        return new

    await add(store, "bad")
    await add(store, "good")
    clock.advance(60)
    ticker = Ticker(store, prepare=reject_bad)
    assert await ticker.once() == RELOAD_INTERVAL
    assert [row.headers["schedule"] for row in await jobs(store)] == ["good"]
    assert "schedule 'bad': could not create the job of a tick" in caplog.text


async def test_a_store_outage_does_not_end_the_ticker(
    store: MemoryStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setattr(module, "RETRY_DELAY", 0.001)
    failures: list[Exception] = [StoreUnavailableError("unavailable"), RuntimeError("odd")] * 2

    def on_call(verb: str) -> None:
        if verb == "enqueue" and failures:
            raise failures.pop(0)

    await add(store)
    clock.advance(60)
    running = asyncio.create_task(Ticker(SpyStore(store, on_call)).run())
    await eventually(lambda: _has_jobs(store))
    running.cancel()
    await asyncio.wait({running})
    messages = [record.getMessage() for record in caplog.records]
    assert messages.count("Enqueuing scheduled jobs failed; retrying: unavailable") == 1
    assert messages.count("Enqueuing scheduled jobs failed; retrying") == 2


async def _has_jobs(store: Store) -> bool:
    return bool(await jobs(store))


# -- changes at run time


async def test_added_changed_and_deleted_schedules_are_read_at_the_next_reload(
    store: MemoryStore, clock: VirtualClock
) -> None:
    ticker, records = Ticker(store), ScheduleRecords(store)
    await ticker.once()
    await add(store)
    clock.advance(60)
    await ticker.once()
    assert len(await ticks(store)) == 1
    await records.delete("often")
    assert await store.list_records(MARK) == []
    await add(store, every="1h")
    clock.advance("1m")
    await ticker.once()
    assert len(await ticks(store)) == 1
    clock.advance("59m")
    await ticker.once()
    assert (await ticks(store))[1:] == ["2026-01-01T01:01:00Z"]


async def test_schedules_on_all_pages_are_read(
    store: MemoryStore, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Paged(SpyStore):
        async def list_records(self, kind: str, after: str = "", limit: int = 2) -> list[Entry]:
            return await super().list_records(kind, after, 2)

    monkeypatch.setattr(module, "BATCH", 2)
    for number in range(5):
        await add(store, f"s{number}")
    clock.advance(60)
    verbs: list[str] = []
    await Ticker(Paged(store, verbs.append)).once()
    assert len(await ticks(store)) == 5
    assert verbs.count("enqueue") == 3


# -- schedules declared in code


def declared(*made: Schedule) -> Iterable[Schedule]:
    return [
        replace(schedule, declared=f"{schedule.timing}{schedule.job.payload!r}")
        for schedule in made
    ]


async def test_a_weekly_tick_fires_although_workers_restart_daily(
    store: MemoryStore, clock: VirtualClock
) -> None:
    weekly = make_schedule("weekly", make_job(task="report"), every="7d")
    for _ in range(8):
        worker = Ticker(store, schedules=lambda: declared(weekly))
        await worker.declare()
        await worker.once()
        clock.advance("1d")
    assert await ticks(store) == ["2026-01-08T00:00:00Z"]


async def test_an_unchanged_declaration_is_not_written(store: MemoryStore) -> None:
    schedule = make_schedule("hourly", make_job(task="report"), every="1h")
    await Ticker(store, schedules=lambda: declared(schedule)).declare()
    verbs: list[str] = []
    await Ticker(SpyStore(store, verbs.append), schedules=lambda: declared(schedule)).declare()
    assert "put_records" not in verbs


async def test_a_schedule_that_cannot_be_stored_delays_no_other(
    store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    large = make_schedule("large", make_job(payload=b"x" * 1_000_000), every="1h")
    small = make_schedule("small", make_job(), every="1h")
    await Ticker(store, schedules=lambda: declared(large, small)).declare()
    assert [info.name for info in await ScheduleRecords(store).list()] == ["small"]
    assert "could not store schedule 'large' of the app" in caplog.text


async def test_two_workers_that_start_at_once_declare_one_schedule(
    store: MemoryStore, clock: VirtualClock
) -> None:
    class YieldingPut(SpyStore):
        async def put_records(self, puts: Sequence[Put]) -> list[PutResult]:
            await asyncio.sleep(0)
            return await super().put_records(puts)

    def one() -> Iterable[Schedule]:  # each process creates its own id
        return declared(make_schedule("one", make_job(task="report"), every="1m"))

    tickers = [Ticker(YieldingPut(store), schedules=one) for _ in range(4)]
    await asyncio.gather(*(ticker.declare() for ticker in tickers))
    clock.advance(60)
    await asyncio.gather(*(ticker.once() for ticker in tickers))
    assert len(await ticks(store)) == 1


# -- in a worker


async def test_a_worker_stores_declared_schedules_and_runs_their_jobs() -> None:
    app = Windlass("memory:")
    ran: list[str] = []

    @app.schedule(every="1s", kwargs={"name": "ada"})
    @app.task
    async def greet(name: str) -> None:
        ran.append(name)

    async with running_worker(app):
        await eventually(lambda: asyncio.sleep(0, len(ran) >= 2))
    assert set(ran) == {"ada"}
    [found] = await app.schedules.alist()
    assert found.declared
    await app.aclose()


async def test_a_worker_with_schedules_disabled_stores_none() -> None:
    app = Windlass("memory:")

    @app.schedule(every="1s")
    @app.task
    async def greet() -> None: ...

    @app.task
    async def other() -> None: ...

    job = await other.aenqueue()
    async with running_worker(app, schedules=False):
        await job.await_end(WAIT_TIMEOUT)
    assert await app.schedules.alist() == []
    await app.aclose()


async def test_a_tick_does_not_wait_for_the_job_of_the_previous_tick(
    store: MemoryStore, clock: VirtualClock
) -> None:
    await add(store)
    ticker = Ticker(store)
    for _ in range(2):
        clock.advance(60)
        await ticker.once()
    assert len(await jobs(store)) == 2


async def test_with_a_unique_key_a_tick_enqueues_no_job_while_one_is_active(
    store: MemoryStore, clock: VirtualClock
) -> None:
    await add(store, job=make_job(task="report", unique_key="one at a time"))
    ticker = Ticker(store)
    clock.advance(60)
    await ticker.once()
    first = await claim_one(store)
    clock.advance(60)
    await ticker.once()
    assert len(await jobs(store)) == 1
    await settle_one(store, await get_one(store, first.id), Succeeded())
    clock.advance(60)
    await ticker.once()
    assert (await ticks(store))[1:] == ["2026-01-01T00:03:00Z"]
    [found] = await ScheduleRecords(store).list()
    assert found.last_tick == to_datetime(clock.now() // SECOND * SECOND)
