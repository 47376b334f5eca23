"""Events of a running task, and its steps."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from itertools import pairwise
from random import Random
from typing import Any, NoReturn

import pytest
from tests.worker.event_waits import WAIT_TIMEOUT, events_of, wait_for_event
from tests.worker.spy_store import SpyStore
from tests.worker.workers import run_burst, run_to_end, running_worker

from windlass import Context, InvalidArgumentError, Job, Windlass, fixed
from windlass.core.codec import JsonCodec, Purpose
from windlass.core.decisions.outcome import Succeeded
from windlass.core.errors import StaleLeaseError, StoreUnavailableError, TooLargeError
from windlass.core.event import Event, EventType
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.core.size_limits import MAX_BLOB, MAX_EVENT, MAX_KEY
from windlass.store import Store
from windlass.stores.memory import MemoryStore
from windlass.testing.clock import VirtualClock
from windlass.testing.factories import claim_one, read_events, settle_one, start_one
from windlass.testing.faulty_store import FaultyStore


@pytest.fixture
async def app() -> AsyncIterator[Windlass]:
    app = Windlass("memory:")
    yield app
    await app.aclose()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(clock=VirtualClock())


def context_of(row: JobRow, store: Store) -> Context:
    return Context(row, store, JsonCodec(), asyncio.get_running_loop())


def body(event: Event) -> Any:
    assert event.body is not None
    return JsonCodec().decode(event.body, Purpose.EVENT)


def percents(events: list[Event]) -> list[int]:
    return [event.data["progressPct"] for event in events if "progressPct" in event.data]


# -- progress


async def test_unstored_progress_is_replaced_by_the_newest(store: MemoryStore) -> None:
    row = await start_one(store)
    context = context_of(row, store)
    for percent in range(1, 1001):
        context.progress(percent / 10)
    [record] = context.take()
    assert record.percent == 100
    assert context.take() == ()


async def test_other_events_are_kept_in_order(store: MemoryStore) -> None:
    row = await start_one(store)
    context = context_of(row, store)
    context.progress(10)
    context.log("half way", "debug")
    context.progress(20)
    context.progress(30)
    context.warn("careful")
    await context.flush()
    events = [e for e in await read_events(store, row.id) if e.seq > 3]
    assert [event.type for event in events] == [
        EventType.STEP_PROGRESS,
        EventType.LOG,
        EventType.STEP_PROGRESS,
        EventType.WARNING,
    ]
    assert body(events[1]) == {"level": "debug", "message": "half way"}
    assert body(events[3]) == {"message": "careful"}
    assert percents(events) == [10, 30]


async def test_progress_never_decreases(store: MemoryStore) -> None:
    row = await start_one(store)
    context = context_of(row, store)
    random = Random(7)
    for _ in range(50):
        context.progress(random.uniform(-50, 150))
        await context.flush()
    seen = percents(await read_events(store, row.id))
    assert all(a <= b for a, b in pairwise(seen))
    assert seen[-1] <= 100
    context.progress(float("nan"))
    context.progress(-1)
    await context.flush()
    assert percents(await read_events(store, row.id))[-1] == seen[-1]


async def test_a_stage_maps_its_own_progress_to_the_whole(store: MemoryStore) -> None:
    row = await start_one(store)
    context = context_of(row, store)
    for stage, percent in (("script", 100), ("voice", 50), ("nonsense", 90), ("render", 0)):
        context.stage(stage)
        context.progress(percent, f"{stage} runs")
        await context.flush()
    events = await read_events(store, row.id)
    assert percents(events) == [15, 25, 25, 85]
    assert [event.data["phase"] for event in events if "progressPct" in event.data] == [
        "plan",
        "tts",
        "processing",
        "render",
    ]


async def test_a_new_attempt_has_no_stage_until_it_names_one(app: Windlass) -> None:
    @app.task(backoff=fixed(0))
    async def task(ctx: Context) -> None:
        if ctx.attempt == 1:
            ctx.stage("plan")
            raise ValueError
        ctx.progress(40)  # of the whole job: the stage of the earlier attempt does not apply

    job = await task.aenqueue()
    await run_to_end(app, job)
    assert percents(await events_of(job))[-1] == 40


async def test_the_last_events_are_stored_by_the_settle_without_another_write(
    app: Windlass,
) -> None:
    verbs: list[str] = []

    @app.task
    async def task(ctx: Context) -> None:
        ctx.progress(70, "nearly")
        ctx.log("done")

    job = await task.aenqueue()
    await run_burst(app, SpyStore(app.client().store.twin(), verbs.append))
    events = await events_of(job)
    assert percents(events) == [70]
    assert [event.type for event in events[-3:-1]] == [EventType.STEP_PROGRESS, EventType.LOG]
    assert "record" not in verbs
    assert verbs.count("apply") == 1


async def test_progress_is_written_while_a_task_runs(app: Windlass) -> None:
    go = asyncio.Event()

    @app.task
    async def task(ctx: Context) -> None:
        for percent in range(60):
            ctx.progress(percent)
        await go.wait()

    job = await task.aenqueue()
    verbs: list[str] = []
    async with running_worker(app, SpyStore(app.client().store.twin(), verbs.append)):
        event = await wait_for_event(job, lambda event: event.type is EventType.STEP_PROGRESS)
        assert event.data["progressPct"] == 59
        go.set()
        await job.await_end(WAIT_TIMEOUT)
    assert verbs.count("record") == 1


async def test_a_sync_task_records_events_from_its_own_thread(app: Windlass) -> None:
    @app.task
    def task(ctx: Context) -> str:
        ctx.log(f"from {threading.current_thread().name}")
        return ctx.step("one", lambda: "result")

    job = await task.aenqueue()
    await run_to_end(app, job)
    [line] = await events_of(job, EventType.LOG)
    assert body(line)["message"].startswith("from windlass-task")
    assert await job.aresult() == "result"


@pytest.mark.parametrize(
    "text", ["x" * 10 * MAX_EVENT, "\x00" * MAX_EVENT, "\ud800", "漢" * 80_000]
)
async def test_text_of_any_length_and_with_any_characters_is_stored(
    app: Windlass, text: str
) -> None:
    @app.task(max_retries=0)
    async def task(ctx: Context) -> None:
        ctx.log(text)
        ctx.warn(text)
        ctx.progress(50, text)
        await ctx.flush()
        ctx.log(text)

    job = await task.aenqueue()
    row = await run_to_end(app, job)
    assert row.state is State.SUCCEEDED
    lines = await events_of(job, EventType.LOG, EventType.WARNING, EventType.STEP_PROGRESS)
    assert len(lines) == 4
    assert all(body(line)["message"] for line in lines)


async def test_an_event_that_cannot_be_stored_is_refused_at_the_call(store: MemoryStore) -> None:
    context = context_of(await start_one(store), store)
    with pytest.raises(InvalidArgumentError, match="stage"):
        context.stage("s" * (MAX_KEY + 1))
    with pytest.raises(TooLargeError, match="log event"):
        context.log("short", level="l" * MAX_EVENT)
    assert context.take() == ()


async def test_events_of_a_failed_flush_are_stored_later_in_order(store: MemoryStore) -> None:
    down = True

    def on_call(verb: str) -> None:
        if down and verb == "record":
            raise StoreUnavailableError("unavailable")

    row = await start_one(store)
    context = context_of(row, SpyStore(store, on_call))
    context.log("one")
    with pytest.raises(StoreUnavailableError):
        await context.flush()
    context.log("two")
    down = False
    await context.flush()
    lines = [e for e in await read_events(store, row.id) if e.type is EventType.LOG]
    assert [body(line)["message"] for line in lines] == ["one", "two"]


async def test_concurrent_flushes_lose_no_event(store: MemoryStore) -> None:
    """The store drops records older than its newest, so flushes must run one after the other."""
    row = await start_one(store)
    faulty = FaultyStore(store, Random(3).random, lose=0.3, repeat=0.3, delay=True)
    context = context_of(row, faulty)

    async def emit(name: str) -> None:
        for n in range(20):
            context.log(f"{name}{n}")
            await context.flush()

    await asyncio.gather(*(emit(name) for name in "abc"))
    lines = [e for e in await read_events(store, row.id) if e.type is EventType.LOG]
    assert len({body(line)["message"] for line in lines}) == len(lines) == 60


async def test_a_flush_after_a_lost_lease_raises(store: MemoryStore) -> None:
    row = await start_one(store)
    context = context_of(row, store)
    await settle_one(store, row, Succeeded())
    context.log("stale")
    with pytest.raises(StaleLeaseError, match=str(row.id)):
        await context.flush()
    assert EventType.LOG not in {e.type for e in await read_events(store, row.id)}


# -- steps


async def test_a_finished_step_is_not_run_again(app: Windlass) -> None:
    runs: list[str] = []

    @app.task(backoff=fixed(0))
    async def task(ctx: Context) -> list[str]:
        async def piece(name: str, *, suffix: bool = False) -> str:
            runs.append(name)
            if name == "second" and ctx.attempt == 1:
                raise ConnectionError("in the second step")
            return f"{name} of attempt {ctx.attempt}" + "!" * suffix

        return [
            await ctx.astep("first", piece, "first", suffix=True),
            await ctx.astep("second", piece, "second"),
        ]

    job = await task.aenqueue()
    row = await run_to_end(app, job)
    assert await job.aresult() == ["first of attempt 1!", "second of attempt 2"]
    assert runs == ["first", "second", "second"]
    assert row.last_step == "second"
    [first, _] = await app.client().store.insights.attempts(job.id) or []
    assert first.error is not None
    assert first.error.step == "second"


async def test_finished_steps_of_a_sync_task_are_not_run_again(app: Windlass) -> None:
    runs: list[int] = []

    @app.task(backoff=fixed(0))
    def task(ctx: Context) -> int:
        def piece() -> int:
            runs.append(ctx.attempt)
            return 7

        result = ctx.step("only", piece)
        if ctx.attempt < 3:
            raise ValueError
        return result

    job = await task.aenqueue()
    await run_to_end(app, job)
    assert await job.aresult() == 7
    assert runs == [1]


async def test_steps_survive_the_death_of_their_worker(tmp_path: Any) -> None:
    """The first worker dies after the first step. Its lease expires, and another continues."""
    clock = VirtualClock()
    app = Windlass(f"sqlite:///{tmp_path}/jobs.db?durability=off", clock=clock)
    runs: list[str] = []

    @app.task
    async def task(ctx: Context) -> list[str]:
        async def piece(name: str) -> str:
            runs.append(name)
            return f"{name} by {ctx.attempt}"

        return [await ctx.astep(name, piece, name) for name in ("one", "two")]

    job = await task.aenqueue()
    store = app.client().store
    dead = context_of(await claim_one(store, lease=10.0), store)

    async def one() -> str:
        return "one by 1"

    assert await dead.astep("one", one) == "one by 1"
    clock.advance(11)
    await run_to_end(app, job)
    assert await job.aresult() == ["one by 1", "two by 2"]
    assert runs == ["two"]
    assert (job.row.crash_count, job.row.attempt) == (1, 2)
    with pytest.raises(StaleLeaseError):
        await dead.astep("two", one)
    await app.aclose()


async def test_a_step_waits_for_an_unavailable_store(
    app: Windlass,
) -> None:
    failures_left = {"record": 2, "checkpoints": 1}

    def on_call(verb: str) -> None:
        if failures_left.get(verb, 0) > 0:
            failures_left[verb] -= 1
            raise StoreUnavailableError("unavailable")

    @app.task(max_retries=0)
    async def task(ctx: Context) -> int:
        async def piece() -> int:
            return 5

        return await ctx.astep("piece", piece)

    job = await task.aenqueue()
    await run_burst(app, SpyStore(app.client().store.twin(), on_call))
    assert await job.aresult(WAIT_TIMEOUT) == 5
    assert job.row.attempt == 1
    assert set(failures_left.values()) == {0}


@pytest.mark.parametrize(
    ("value", "message"), [("x" * MAX_BLOB, "checkpoint of step 'big'"), (object(), "checkpoint")]
)
async def test_a_step_whose_result_cannot_be_stored_fails_with_that_error(
    app: Windlass, value: Any, message: str
) -> None:
    @app.task(max_retries=0)
    async def task(ctx: Context) -> NoReturn:
        async def piece() -> Any:
            return value

        await ctx.astep("big", piece)
        raise AssertionError("not reached")

    job: Job[Any] = await task.aenqueue()
    row = await run_to_end(app, job)
    assert row.error is not None
    assert row.error.step == "big"
    assert message in json.loads(row.error.body or b"{}")["message"]


async def test_a_step_inside_a_step_leaves_the_outer_one_current(app: Windlass) -> None:
    seen: list[str | None] = []

    @app.task
    async def task(ctx: Context) -> None:
        async def inner() -> None:
            seen.append(ctx.current_step)

        async def outer() -> None:
            await ctx.astep("inner", inner)
            seen.append(ctx.current_step)

        await ctx.astep("outer", outer)
        seen.append(ctx.current_step)

    await run_to_end(app, await task.aenqueue())
    assert seen == ["inner", "outer", None]
