"""Schedules: declared above a task or in a group, and `app.schedules` at run time."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.worker.event_waits import WAIT_TIMEOUT
from tests.worker.workers import run_burst

from windlass import (
    ConfigurationError,
    ConflictError,
    Context,
    EncryptingCodec,
    InvalidArgumentError,
    NewJob,
    NotFoundError,
    Schedules,
    Tasks,
    Windlass,
)
from windlass.core.query.job_query import JobQuery
from windlass.core.schedule import SCHEDULE, MissedPolicy, Schedule
from windlass.options import EnqueueOptions
from windlass.records.schedule_records import ScheduleRecords
from windlass.testing import VirtualClock
from windlass.worker.loops.ticker import Ticker


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    in_memory = request.param == "memory"
    return "memory:" if in_memory else f"sqlite:///{tmp_path}/jobs.db?durability=off"


@pytest.fixture
async def app(url: str, clock: VirtualClock) -> AsyncIterator[Windlass]:
    app = Windlass(url, clock=clock)
    yield app
    await app.aclose()


@pytest.fixture
def plain(url: str, clock: VirtualClock) -> Iterator[Windlass]:
    """For tests without an event loop."""
    app = Windlass(url, clock=clock)
    yield app
    app.close()


def ticker(app: Windlass) -> Ticker:
    parts = app.parts
    return Ticker(
        app.client().store,
        schedules=parts.declared_schedules,
        prepare=parts.middleware.enqueue,
    )


async def start(app: Windlass) -> None:
    """Store the declared schedules, as a starting worker does."""
    await ticker(app).declare()


# -- declared in code


async def test_a_starting_worker_stores_the_declared_schedules(app: Windlass) -> None:
    @app.schedule("30 3 * * *", tz="Europe/Berlin", missed="all")
    @app.task(name="report")
    async def report() -> None: ...

    assert await app.schedules.alist() == []
    await start(app)
    [found] = await app.schedules.alist()
    assert (found.name, found.task, found.cron, found.tz) == (
        "report", "report", "30 3 * * *", "Europe/Berlin"
    )  # fmt: skip
    assert (found.every, found.missed, found.paused, found.declared) == (
        None, MissedPolicy.ALL, False, True
    )  # fmt: skip
    assert found.next_tick == datetime(2026, 1, 1, 2, 30, tzinfo=UTC)
    assert found.last_tick is None


async def test_a_tick_calls_the_task_with_its_arguments_and_options(
    app: Windlass, clock: VirtualClock
) -> None:
    seen: list[Any] = []

    @app.task(name="report", queue="slow", max_retries=7)
    async def report(ctx: Context, country: str, days: int = 1) -> None:
        seen.append((country, days, dict(ctx.job.headers)))

    app.schedule(every="1m", args=["de"], kwargs={"days": 7})(report.options(priority=5))
    await start(app)
    clock.advance(60)
    await ticker(app).once()
    worker = await run_burst(app, queues={"slow": 1})
    assert sum(worker.settled.values()) == 1
    tick = {"schedule": "report", "schedule-tick": "2026-01-01T00:01:00Z"}
    assert seen == [("de", 7, tick)]
    [row] = (await app.client().store.find(JobQuery())).rows
    assert (row.priority, row.policy.max_retries) == (5, 7)


def test_a_scheduled_task_is_still_a_task() -> None:
    app = Windlass("memory:")

    @app.schedule(every="1m")
    @app.task
    def double(number: int = 1) -> int:
        return 2 * number

    assert double(4) == 8
    assert double.name.endswith("double")
    app.close()


async def test_several_schedules_of_one_task_have_names(app: Windlass) -> None:
    @app.schedule(every="1h")
    @app.schedule("0 9 * * mon", name="weekly", kwargs={"days": 7})
    @app.task(name="report")
    async def report(days: int = 1) -> None: ...

    await start(app)
    assert [one.name for one in await app.schedules.alist()] == ["report", "weekly"]
    with pytest.raises(ConfigurationError, match=r"two schedules are named 'report'.*name="):
        app.schedule(every="2h")(report)


@pytest.mark.parametrize("late", [False, True])
async def test_an_app_gets_the_schedules_of_a_group(app: Windlass, late: bool) -> None:
    tasks = Tasks()
    if late:
        app.include(tasks)

    @tasks.schedule(every="1h")
    @tasks.task(name="clean")
    def clean() -> None: ...

    if not late:
        app.include(tasks)
    await start(app)
    assert [one.name for one in await app.schedules.alist()] == ["clean"]


def test_a_group_with_a_duplicate_schedule_name_is_not_included() -> None:
    app, tasks = Windlass("memory:"), Tasks()

    @app.schedule(every="1h", name="clean")
    @app.task
    def sweep() -> None: ...

    @tasks.schedule(every="1h")
    @tasks.task(name="clean")
    def clean() -> None: ...

    with pytest.raises(ConfigurationError, match="two schedules are named 'clean'"):
        app.include(tasks)
    assert app.tasks.get("clean") is None
    app.close()


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"cron": "61 * * * *"}, "cron is '61 \\* \\* \\* \\*': bad minute"),
        ({"cron": "* * * * *", "tz": "Europe/Berlim"}, "did you mean Europe/Berlin"),
        ({"every": "0.5s"}, "it must be 1 s or more"),
        ({"every": "soon"}, 'every is .soon.; write seconds, or text such as "30s"'),
        ({}, "needs either a cron expression"),
        ({"cron": "* * * * *", "every": 5}, "needs either a cron expression"),
        ({"every": 5, "tz": "Asia/Tokyo"}, "remove tz"),
        (
            {"every": 5, "missed": "some"},
            "missed is 'some'; it must be one of 'skip', 'last', 'all'",
        ),
        ({"every": 5, "name": " "}, "the name of a schedule is empty"),
        ({"every": 5, "kwargs": {"dayz": 1}}, "has no argument 'dayz'; it takes 'days'"),
        ({"every": 5, "args": ["many"]}, "argument 'days'"),
    ],
)
def test_an_invalid_schedule_is_refused_where_it_is_declared(
    wrong: dict[str, Any], why: str
) -> None:
    app = Windlass("memory:")

    @app.task
    def report(days: int = 1) -> None: ...

    with pytest.raises(InvalidArgumentError, match=why):
        app.schedule(**wrong)(report)
    app.close()


def test_options_of_a_single_job_are_refused_in_a_schedule() -> None:
    app = Windlass("memory:")

    @app.task
    def report() -> None: ...

    with pytest.raises(InvalidArgumentError, match="request_id, which applies to a single job"):
        app.schedule(every=5)(report.options(request_id="r"))
    app.close()


def test_only_a_task_of_the_app_can_be_scheduled() -> None:
    app, other = Windlass("memory:"), Windlass("memory:")

    def function() -> None: ...

    with pytest.raises(ConfigurationError, match=r"put @app\.schedule above @app\.task"):
        app.schedule(every=5)(function)  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="belongs to another app or group"):
        app.schedule(every=5)(other.task(function))
    app.close()
    other.close()


# -- changed code


def version(url: str, clock: VirtualClock, **timing: Any) -> Windlass:
    """The app of one version of the code."""
    app = Windlass(url, clock=clock)
    kwargs = timing.pop("kwargs", None)

    @app.task(name="report", max_retries=timing.pop("max_retries", 3))
    def report(days: int = 1) -> None: ...

    if timing:
        app.schedule(name="report", kwargs=kwargs, **timing)(report)
    return app


@pytest.fixture
def file(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/jobs.db?durability=off"


async def stored(app: Windlass) -> Schedule:
    [entry] = await app.client().store.list_records(SCHEDULE)
    return Schedule.decode(entry.value)


async def test_new_arguments_are_stored_and_the_interval_continues(
    file: str, clock: VirtualClock
) -> None:
    old = version(file, clock, every="1h", kwargs={"days": 1})
    await start(old)
    before = await stored(old)
    await old.aclose()
    clock.advance("30m")
    new = version(file, clock, every="1h", kwargs={"days": 2}, max_retries=9)
    await start(new)
    after = await stored(new)
    assert (after.id, after.since, after.anchor) == (before.id, before.since, before.anchor)
    assert (after.job.payload, after.job.policy.max_retries) == (b'{"days":2}', 9)
    await new.aclose()


async def test_a_changed_time_applies_from_when_it_is_stored(
    file: str, clock: VirtualClock
) -> None:
    old = version(file, clock, every="1h", missed="all")
    await start(old)
    await old.aclose()
    clock.advance("50m")
    new = version(file, clock, every="1m", missed="all")
    await start(new)
    await ticker(new).once()
    assert (await new.client().store.find(JobQuery())).rows == []
    await new.aclose()


async def test_a_pause_made_at_run_time_outlives_a_deploy(file: str, clock: VirtualClock) -> None:
    old = version(file, clock, every="1h")
    await start(old)
    await old.schedules.apause("report")
    await old.aclose()
    new = version(file, clock, every="2h")
    await start(new)
    found = await new.schedules.aget("report")
    assert (found.paused, found.every, found.next_tick) == (True, 7200.0, None)
    await new.aclose()


async def test_a_schedule_that_code_no_longer_declares_stays_until_deleted(
    file: str, clock: VirtualClock
) -> None:
    """Another app on the same store may declare it."""
    old = version(file, clock, every="1h")
    await start(old)
    await old.aclose()
    new = version(file, clock)
    await start(new)
    assert (await new.schedules.adelete("report")).declared
    await start(new)
    assert await new.schedules.alist() == []
    await new.aclose()


async def test_a_deleted_schedule_is_stored_again_if_code_declares_it(
    app: Windlass, clock: VirtualClock
) -> None:
    @app.schedule(every="1h", missed="all")
    @app.task(name="report")
    def report() -> None: ...

    await start(app)
    first = await stored(app)
    await app.schedules.adelete("report")
    clock.advance("5h")
    await start(app)
    again = await stored(app)
    assert again.id != first.id
    assert again.since == clock.now()


async def test_a_declared_schedule_replaces_one_added_at_run_time(
    file: str, clock: VirtualClock
) -> None:
    app = version(file, clock, every="1h")
    job = app.prepare(next(iter(app.tasks)), (), {}, EnqueueOptions())
    await app.schedules.aadd("report", job, every="5m")
    await start(app)
    found = await app.schedules.aget("report")
    assert (found.every, found.declared) == (3600.0, True)
    await app.aclose()


async def test_an_encrypting_codec_keeps_the_fingerprint_of_a_schedule(
    clock: VirtualClock,
) -> None:
    app = Windlass("memory:", clock=clock, codec=EncryptingCodec({"k": bytes(32)}))

    @app.schedule(every="1h", kwargs={"secret": "swordfish"})
    @app.task(name="report")
    def report(secret: str) -> None: ...

    await start(app)
    [entry] = await app.client().store.list_records(SCHEDULE)
    assert b"swordfish" not in entry.value
    await start(app)
    [again] = await app.client().store.list_records(SCHEDULE)
    assert again.version == 1, "though the ciphertext differs each time"
    await app.aclose()


# -- at run time


async def test_schedules_are_added_listed_paused_resumed_and_deleted(
    app: Windlass, clock: VirtualClock
) -> None:
    @app.task(name="report")
    async def report(country: str) -> None: ...

    made = await app.schedules.aadd("daily", report.new_job("de"), cron="0 3 * * *")
    assert (made.task, made.declared) == ("report", False)
    assert made.next_tick == datetime(2026, 1, 1, 3, tzinfo=UTC)
    await app.schedules.aadd("often", report.options(queue="q").new_job(country="fr"), every="5m")
    assert [one.name for one in await app.schedules.alist()] == ["daily", "often"]
    paused = await app.schedules.apause("often")
    assert (paused.paused, paused.next_tick) == (True, None)
    clock.advance("1h")
    resumed = await app.schedules.aresume("often")
    assert resumed.next_tick == datetime(2026, 1, 1, 1, 5, tzinfo=UTC)
    await app.schedules.adelete("often")
    assert [one.name for one in await app.schedules.alist()] == ["daily"]


async def test_the_last_tick_is_reported(app: Windlass, clock: VirtualClock) -> None:
    @app.task(name="report")
    async def report() -> None: ...

    await app.schedules.aadd("often", report.new_job(), every="5m")
    clock.advance("5m")
    await ticker(app).once()
    found = await app.schedules.aget("often")
    assert found.last_tick == datetime(2026, 1, 1, 0, 5, tzinfo=UTC)
    assert found.next_tick == datetime(2026, 1, 1, 0, 10, tzinfo=UTC)


async def test_a_job_can_be_enqueued_in_addition_to_the_ticks(
    app: Windlass, clock: VirtualClock
) -> None:
    seen: list[str] = []

    @app.middleware
    def watch(new: NewJob) -> NewJob:
        seen.append(new.task)
        return new

    @app.task(name="report")
    async def report(country: str) -> str:
        return country

    await app.schedules.aadd("daily", report.new_job("de"), cron="0 3 * * *")
    await app.schedules.apause("daily")
    one, two = [await app.schedules.arun("daily") for _ in range(2)]
    assert one.id != two.id
    assert seen == ["report", "report"]
    assert one.row.headers == {"schedule": "daily", "schedule-tick": "2026-01-01T00:00:00Z"}
    await run_burst(app)
    assert await one.aresult(WAIT_TIMEOUT) == "de"


async def test_a_name_that_is_taken_is_a_conflict(app: Windlass) -> None:
    @app.task(name="report")
    async def report() -> None: ...

    await app.schedules.aadd("daily", report.new_job(), every="5m")
    with pytest.raises(ConflictError, match="schedule 'daily' already exists"):
        await app.schedules.aadd("daily", report.new_job(), every="6m")
    assert (await app.schedules.aget("daily")).every == 300.0


@pytest.mark.parametrize("verb", ["aget", "apause", "aresume", "adelete", "arun"])
async def test_an_unknown_schedule_is_not_found(app: Windlass, verb: str) -> None:
    with pytest.raises(NotFoundError, match=r"no schedule 'daily'$"):
        await getattr(app.schedules, verb)("daily")

    @app.schedule(every="1h", name="daily")
    @app.task
    async def report() -> None: ...

    with pytest.raises(
        NotFoundError, match="declared in code, and stored when the first worker starts"
    ):
        await getattr(app.schedules, verb)("daily")


async def test_a_concurrent_change_is_repeated_on_the_new_version(app: Windlass) -> None:
    @app.task(name="report")
    async def report() -> None: ...

    await app.schedules.aadd("daily", report.new_job(), every="5m")
    store = app.client().store
    table = ScheduleRecords(store)
    met = False

    def change(old: Schedule, now: int) -> Schedule:
        return replace(old, paused=True, declared=f"{old.missed}{now}")

    original = table._read

    async def read(name: str) -> Any:
        nonlocal met
        found = await original(name)
        if not met:
            met = True
            await ScheduleRecords(store)._change(
                name, lambda old, _: replace(old, missed=MissedPolicy.ALL)
            )
        return found

    table._read = read  # type: ignore[method-assign]
    changed = await table._change("daily", change)
    assert (changed.paused, changed.missed) == (True, MissedPolicy.ALL)


# -- sync and async API


def test_the_sync_api_works_without_an_event_loop(plain: Windlass) -> None:
    @plain.task(name="report")
    def report() -> None: ...

    plain.schedules.add("daily", report.new_job(), every="5m", missed="skip")
    assert [one.missed for one in plain.schedules.list()] == [MissedPolicy.SKIP]
    assert plain.schedules.pause("daily").paused
    assert not plain.schedules.resume("daily").paused
    assert plain.schedules.get("daily").task == "report"
    assert plain.schedules.run("daily").state == "queued"
    plain.schedules.delete("daily")
    assert plain.schedules.list() == []


@pytest.mark.parametrize("name", ["add", "list", "get", "pause", "resume", "delete", "run"])
def test_sync_and_async_methods_have_the_same_parameters(name: str) -> None:
    one, two = getattr(Schedules, name), getattr(Schedules, f"a{name}")
    assert inspect.signature(one) == inspect.signature(two)
    assert inspect.iscoroutinefunction(two)
    assert not inspect.iscoroutinefunction(one)
