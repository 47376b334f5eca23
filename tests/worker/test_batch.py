"""Batch tasks: one call for many jobs, each settled separately."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pytest
from pydantic import BaseModel, Field
from tests.worker import batch_tasks
from tests.worker.event_waits import WAIT_TIMEOUT, events_of, eventually, is_running, wait_for_event
from tests.worker.spy_store import SpyStore
from tests.worker.workers import run_burst, running_worker

from windlass import (
    Batch,
    Cancel,
    ConfigurationError,
    ConflictError,
    Context,
    InvalidArgumentError,
    Item,
    Job,
    JobFailedError,
    RetryAfter,
    Snooze,
    TerminalError,
    Windlass,
    fixed,
)
from windlass.core.decisions.outcome import Released, settle
from windlass.core.event import EventType
from windlass.core.ids import uuid7
from windlass.core.job.lease import Claim
from windlass.core.job.state import State, Trigger
from windlass.core.query.job_query import JobQuery
from windlass.testing import VirtualClock, twin
from windlass.testing import batch as make_batch
from windlass.testing.factories import claim_one, no_jitter, set_paused
from windlass.worker.batch.batch_call import BatchCall
from windlass.worker.batch.collector import BatchCollector
from windlass.worker.running_attempts import RunningAttempt

LONG = 3 * WAIT_TIMEOUT


@dataclass
class Page:
    number: int
    title: str = "untitled"


class Before(NamedTuple):
    """The arguments of a page in an older version of the app."""

    number: str


@pytest.fixture
async def app() -> AsyncIterator[Windlass]:
    app = Windlass("memory:")
    yield app
    await app.aclose()


async def enqueue(app: Windlass, task: Any, *numbers: int) -> list[Job[Any]]:
    """Enqueue the jobs in one write, so that one claim returns all of them."""
    return await app.aenqueue_many([task.new_job(number) for number in numbers])


async def states(jobs: Sequence[Job[Any]]) -> list[State]:
    return [(await job.arefresh()).state for job in jobs]


# -- declaration and call


async def test_one_call_gets_many_jobs_each_with_its_arguments_and_its_result(
    app: Windlass,
) -> None:
    calls: list[list[Page]] = []

    @app.task(batch=10, args=Page)
    async def index(batch: Batch[Page, str]) -> None:
        calls.append(batch.args)
        for page in batch:
            page.succeed(f"{page.args.number}: {page.args.title}")

    await index.aenqueue(1)
    await index.aenqueue(number=2, title="two")
    job = await index.aenqueue(3, title="three")
    await run_burst(app)
    assert calls == [[Page(1), Page(2, "two"), Page(3, "three")]]
    result: str = await job.aresult(WAIT_TIMEOUT)
    assert result == "3: three"
    with pytest.raises(InvalidArgumentError, match="integer"):
        index.new_job(number="x")  # type: ignore[arg-type]


async def test_the_arguments_of_each_job_are_validated_at_enqueue(
    app: Windlass,
) -> None:
    class Model(BaseModel):
        number: int = Field(gt=0)

    class Pair(NamedTuple):
        number: Annotated[int, Field(gt=0)]

    def make(number: int) -> int:
        if number < 1:
            raise ValueError("it must be greater than 0")
        return number

    for nth, args in enumerate((Model, Pair, make)):

        @app.task(batch=2, args=args, name=f"task-{nth}")
        async def task(batch: Batch[Any]) -> None: ...

        with pytest.raises(InvalidArgumentError, match=r"greater than 0"):
            task.new_job(number=0)
        with pytest.raises(InvalidArgumentError, match="no argument 'wrong'"):
            task.new_job(number=1, wrong=2)
        with pytest.raises(InvalidArgumentError, match=r"argument 'number': .*integer"):
            task.new_job(number="x")


async def test_a_batch_task_can_be_called_as_a_function(app: Windlass) -> None:
    @app.task(batch=10, args=Page)
    def index(batch: Batch[Page, int]) -> None:
        for page in batch:
            page.succeed(page.args.number)

    made = make_batch(index, Page(1), Page(2))
    index(made)
    assert [(page.settled, page.result) for page in made] == [(True, 1), (True, 2)]


def test_an_invalid_declaration_is_refused_with_a_correct_example() -> None:
    app = Windlass("memory:")
    with pytest.raises(ConfigurationError, match=r"@app.task\(batch=100, args=Page\)"):
        app.task(batch=10)
    with pytest.raises(ConfigurationError, match=r"@app.task\(batch=100, args=Page\)"):
        app.task(wait="1s")
    with pytest.raises(ConfigurationError, match="from 1 to 10,000"):

        @app.task(batch=0, args=Page)
        async def none(batch: Batch[Page]) -> None: ...

    with pytest.raises(ConfigurationError, match="must take one parameter"):

        @app.task(batch=2, args=Page)  # type: ignore[arg-type]
        async def two(ctx: Context, batch: Batch[Page]) -> None: ...

    with pytest.raises(ConfigurationError, match="remove one of the two"):
        app.task(batch=2, args=Page, executor="process")(batch_tasks.index.spec.function)

    with pytest.raises(ConfigurationError, match="a dataclass, a model or a "):

        @app.task(batch=2, args=int)
        async def scalar(batch: Batch[int]) -> None: ...

    app.close()


# -- collecting


async def test_a_full_batch_starts_at_once_and_the_rest_after_its_wait(app: Windlass) -> None:
    sizes: list[int] = []
    started_at: list[float] = []
    clock = asyncio.get_running_loop().time

    @app.task(batch=4, wait="300ms", args=Page)
    async def index(batch: Batch[Page]) -> None:
        sizes.append(len(batch))
        started_at.append(clock())

    await enqueue(app, index, *range(10))
    start = clock()
    await run_burst(app)
    assert sizes == [4, 4, 2]
    assert started_at[2] - start >= 0.3


async def test_jobs_claimed_while_the_first_waits_join_its_batch(app: Windlass) -> None:
    sizes: list[int] = []

    @app.task(batch=3, wait=WAIT_TIMEOUT, args=Page)
    async def index(batch: Batch[Page]) -> None:
        sizes.append(len(batch))

    async with running_worker(app) as worker:
        for number in (1, 2):
            await index.aenqueue(number)
            await eventually(async_condition(lambda: worker.running == number))  # noqa: B023
        await (await index.aenqueue(3)).await_end(WAIT_TIMEOUT)
    assert sizes == [3]


def async_condition(condition: Callable[[], bool]) -> Callable[[], Awaitable[bool]]:
    async def check() -> bool:
        return condition()

    return check


async def test_a_batch_that_waits_for_more_jobs_holds_no_slot(app: Windlass) -> None:
    @app.task(batch=100, wait=2 * WAIT_TIMEOUT, args=Page)
    async def index(batch: Batch[Page]) -> None: ...

    @app.task
    async def other() -> None: ...

    async with running_worker(app, queues={"default": 1}) as worker:
        await enqueue(app, index, 1, 2)
        await eventually(async_condition(lambda: worker.running == 2))
        await (await other.aenqueue()).await_end(WAIT_TIMEOUT)
        assert worker.running == 2
    assert {(row.task, row.state) for row in (await app.client().store.find(JobQuery())).rows} == {
        (index.name, State.QUEUED),
        (other.name, State.SUCCEEDED),
    }


async def test_one_call_takes_one_slot(app: Windlass) -> None:
    now = peak = 0

    @app.task(batch=5, args=Page)
    async def index(batch: Batch[Page]) -> None:
        nonlocal now, peak
        now += 1
        peak = max(peak, now)
        await asyncio.sleep(0.02)
        now -= 1

    jobs = await enqueue(app, index, *range(40))
    await run_burst(app, queues={"default": 2})
    assert peak == 2
    assert await states(jobs) == [State.SUCCEEDED] * 40


async def test_jobs_are_collected_by_task_and_queue(app: Windlass) -> None:
    calls: list[tuple[str, set[int]]] = []

    @app.task(batch=10, args=Page)
    async def index(batch: Batch[Page]) -> None:
        calls.append(("index", {page.args.number for page in batch}))

    @app.task(batch=10, args=Page)
    async def mail(batch: Batch[Page]) -> None:
        calls.append(("mail", {page.args.number for page in batch}))

    @app.task
    async def plain(number: int) -> None:
        calls.append(("plain", {number}))

    new = [
        job
        for n in range(3)
        for job in (
            index.new_job(n),
            mail.new_job(n),
            plain.new_job(n),
            index.options(queue="other").new_job(10 + n),
        )
    ]
    await app.aenqueue_many(new)
    await run_burst(app, queues={"default": 20, "other": 2})
    assert sorted((name, sorted(numbers)) for name, numbers in calls) == [
        ("index", [0, 1, 2]),
        ("index", [10, 11, 12]),
        ("mail", [0, 1, 2]),
        ("plain", [0]),
        ("plain", [1]),
        ("plain", [2]),
    ]


async def test_surplus_jobs_of_other_tasks_are_released_at_once(
    app: Windlass,
) -> None:
    claims = 0

    def on_call(verb: str) -> None:
        nonlocal claims
        claims += verb == "claim"

    go = asyncio.Event()

    @app.task(batch=50, wait=2 * WAIT_TIMEOUT, args=Page)
    async def index(batch: Batch[Page]) -> None: ...

    @app.task
    async def slow() -> None:
        await go.wait()

    await index.aenqueue(1)
    others = await app.aenqueue_many([slow.new_job() for _ in range(10)])
    store = app.client().store
    async with running_worker(
        app, SpyStore(store.twin(), on_call), queues={"default": 2}, poll_interval=WAIT_TIMEOUT
    ) as worker:
        await eventually(async_condition(lambda: worker.settled.get(State.QUEUED, 0) > 0))
        counted = await states(others)
        assert counted.count(State.RUNNING) == 2
        assert counted.count(State.QUEUED) == 8
        before = claims
        await asyncio.sleep(0.1)
        assert claims == before  # the worker does not repeat claims to fill the batch
        go.set()
        for job in others:
            await job.await_end(WAIT_TIMEOUT)


async def test_without_a_wait_a_batch_gets_one_more_claim(
    app: Windlass,
) -> None:
    @app.task(batch=50, args=Page)
    async def index(batch: Batch[Page]) -> None: ...

    await index.aenqueue(1)
    row = await claim_one(app.client().store)
    ready: list[BatchCall] = []
    collector = BatchCollector(app.tasks, ready.append)
    assert collector.add(RunningAttempt(row, row.lease, 0.0))
    collector.after_claim("default", more=True)  # the claim that returned it
    assert (len(ready), collector.wanted("default")) == (0, 49)
    collector.after_claim("default", more=True)  # one more claim: it returned jobs of other tasks
    assert (len(ready), collector.wanted("default")) == (1, 0)


async def test_a_stop_releases_collected_jobs_at_once(app: Windlass) -> None:
    @app.task(batch=100, wait="1h", args=Page)
    async def index(batch: Batch[Page]) -> None: ...

    jobs = await enqueue(app, index, *range(5))
    async with running_worker(app, grace=2 * WAIT_TIMEOUT) as worker:
        await eventually(async_condition(lambda: worker.running == 5))
    rows = [(await job.arefresh()).row for job in jobs]
    assert [(row.state, row.retry_count, row.crash_count) for row in rows] == [
        (State.QUEUED, 0, 0)
    ] * 5


async def test_a_job_canceled_while_its_batch_collects_never_runs(app: Windlass) -> None:
    seen: list[int] = []

    @app.task(batch=3, wait=WAIT_TIMEOUT, args=Page)
    async def index(batch: Batch[Page]) -> None:
        seen.extend(page.args.number for page in batch)

    first, second = await enqueue(app, index, 1, 2)
    async with running_worker(app, cancel_poll_interval=0.01) as worker:
        await eventually(async_condition(lambda: worker.running == 2))
        await first.acancel("enough")
        await asyncio.sleep(0.1)  # the cancel watcher polls
        await index.aenqueue(3)
        await second.await_end(WAIT_TIMEOUT)
        await first.await_end(WAIT_TIMEOUT)
    assert first.state is State.CANCELED
    assert seen == [2, 3]


# -- items are settled separately


async def test_each_item_is_settled_with_its_own_outcome(app: Windlass) -> None:
    @app.task(batch=10, args=Page, max_retries=2, backoff=fixed(3600))
    async def index(batch: Batch[Page, int]) -> None:
        for page in batch:
            match page.args.number:
                case 1:
                    page.fail(ValueError("rust"))
                case 2:
                    page.fail(TerminalError("for good"))
                case 3:
                    page.fail(Snooze(1800))
                case 4:
                    page.fail(Cancel("not wanted"))
                case 5:
                    page.fail(RetryAfter(60))
                case 6:
                    page.succeed(36)

    jobs = await enqueue(app, index, *range(8))
    async with running_worker(app):
        await jobs[0].await_end(WAIT_TIMEOUT)
        await jobs[6].await_end(WAIT_TIMEOUT)
    rows = [(await job.arefresh()).row for job in jobs]
    assert [row.state for row in rows] == [
        State.SUCCEEDED, State.RETRYING, State.FAILED, State.RETRYING, State.CANCELED,
        State.RETRYING, State.SUCCEEDED, State.SUCCEEDED,
    ]  # fmt: skip
    assert [row.retry_count for row in rows] == [0, 1, 0, 0, 0, 1, 0, 0]
    assert rows[3].trigger is Trigger.SNOOZE
    assert jobs[1].last_error is not None
    assert jobs[1].last_error["message"] == "rust"
    assert [await jobs[n].aresult() for n in (0, 6, 7)] == [None, 36, None]


async def test_an_error_of_the_call_fails_the_unsettled_jobs(app: Windlass) -> None:
    @app.task(batch=10, args=Page, max_retries=0)
    async def index(batch: Batch[Page, str]) -> None:
        batch[0].succeed("kept")
        batch[1].fail(TerminalError("its own"))
        raise RuntimeError("all of them")

    jobs = await enqueue(app, index, *range(4))
    await run_burst(app)
    assert await states(jobs) == [State.SUCCEEDED, *[State.FAILED] * 3]
    assert await jobs[0].aresult() == "kept"
    errors = [job.last_error["message"] for job in jobs[1:] if job.last_error]
    assert errors == ["its own", "all of them", "all of them"]
    traces = [job.last_error["traceback"] for job in jobs[2:] if job.last_error]
    assert all(trace.count("raise RuntimeError") == 1 for trace in traces)
    assert len(set(map(len, traces))) == 1  # no traceback contains another


async def test_jobs_that_fail_with_the_call_are_retried_by_their_own_policy(app: Windlass) -> None:
    calls: list[list[int]] = []

    @app.task(batch=10, args=Page, max_retries=1, backoff=fixed(0))
    async def index(batch: Batch[Page]) -> None:
        calls.append([page.args.number for page in batch])
        if len(calls) == 1:
            raise ValueError("once")

    jobs = await enqueue(app, index, 1, 2, 3)
    await run_burst(app)
    assert calls == [[1, 2, 3], [1, 2, 3]]
    assert [(await job.arefresh()).row.attempt for job in jobs] == [2, 2, 2]


async def test_settled_items_are_stored_while_the_call_continues(app: Windlass) -> None:
    go = asyncio.Event()

    @app.task(batch=3, args=Page)
    async def index(batch: Batch[Page, str]) -> None:
        batch[1].succeed("early")
        await go.wait()

    jobs = await enqueue(app, index, 0, 1, 2)
    async with running_worker(app):
        assert await jobs[1].aresult(WAIT_TIMEOUT) == "early"
        assert await states(jobs) == [State.RUNNING, State.SUCCEEDED, State.RUNNING]
        go.set()
        await jobs[2].await_end(WAIT_TIMEOUT)


async def test_a_call_keeps_its_slot_after_all_its_jobs_are_settled(
    app: Windlass,
) -> None:
    go = asyncio.Event()
    calls = 0

    @app.task(batch=2, args=Page)
    async def index(batch: Batch[Page]) -> None:
        nonlocal calls
        calls += 1
        for page in batch:
            page.succeed()
        await go.wait()

    jobs = await enqueue(app, index, 0, 1, 2, 3)
    async with running_worker(app, queues={"default": 1}):
        await jobs[0].await_end(WAIT_TIMEOUT)
        await asyncio.sleep(0.05)
        assert calls == 1
        go.set()
        await jobs[3].await_end(WAIT_TIMEOUT)
    assert await states(jobs) == [State.SUCCEEDED] * 4


async def test_settling_an_item_twice_raises(app: Windlass) -> None:
    reached: list[bool] = []

    @app.task(batch=2, args=Page)
    async def index(batch: Batch[Page]) -> None:
        batch[0].succeed()
        with pytest.raises(ConflictError, match="already settled"):
            batch[0].succeed()
        with pytest.raises(ConflictError, match="already settled"):
            batch[0].fail(ValueError())
        with pytest.raises(InvalidArgumentError, match="takes an exception"):
            batch[1].fail("a text")  # type: ignore[arg-type]
        reached.append(True)

    [job, _] = await enqueue(app, index, 0, 1)
    await run_burst(app)
    assert reached == [True]
    assert await states([job]) == [State.SUCCEEDED]


async def test_a_result_that_cannot_be_stored_fails_only_its_job(app: Windlass) -> None:
    @app.task(batch=2, args=Page)
    async def index(batch: Batch[Page, Any]) -> None:
        batch[0].succeed(object())
        batch[1].succeed({"fine": True})

    jobs = await enqueue(app, index, 0, 1)
    await run_burst(app)
    assert await states(jobs) == [State.FAILED, State.SUCCEEDED]
    assert jobs[0].row.error is not None
    assert jobs[0].row.error.code == "invalid_result"


async def test_arguments_that_no_longer_match_fail_only_their_job(app: Windlass) -> None:
    old = Windlass(app.url)

    @app.task(batch=3, args=Page, name="index")
    async def index(batch: Batch[Page]) -> None: ...

    @old.task(batch=3, args=Before, name="index")
    async def before(batch: Batch[Before]) -> None: ...

    bad = before.new_job("not a number")
    [first, broken, last] = await app.aenqueue_many([index.new_job(1), bad, index.new_job(2)])
    await run_burst(app)
    assert await states([first, broken, last]) == [State.SUCCEEDED, State.FAILED, State.SUCCEEDED]
    await old.aclose()


async def test_each_item_records_events_of_its_own_job(app: Windlass) -> None:
    @app.task
    async def after(number: int) -> None: ...

    @app.task(batch=5, args=Page)
    async def index(batch: Batch[Page]) -> None:
        for page in batch:
            page.ctx.log(f"page {page.args.number}")
            page.ctx.progress(10 * page.args.number)
            if page.args.number == 2:
                page.ctx.then(after, number=2)

    jobs = await enqueue(app, index, 1, 2, 3)
    await run_burst(app)
    for number, job in enumerate(jobs, 1):
        [event] = await events_of(job, EventType.LOG)
        assert event.data["message"] == f"page {number}"
        assert [e.data["progressPct"] for e in await events_of(job, EventType.STEP_PROGRESS)] == [
            10 * number
        ]
    page = await app.client().store.find(JobQuery(tasks=frozenset({after.name})))
    assert [row.state for row in page.rows] == [State.SUCCEEDED]


async def test_middleware_wraps_each_job_and_sees_its_outcome(app: Windlass) -> None:
    seen: dict[Any, Any] = {}

    @app.middleware
    async def watch(ctx: Context, call_next: Callable[[], Awaitable[Any]]) -> Any:
        await asyncio.sleep(0)
        if ctx.job.tags == ("refuse",):
            raise TerminalError("refused by middleware")
        try:
            seen[ctx.job.id] = await call_next()
        except ValueError as error:
            seen[ctx.job.id] = str(error)
            raise
        return seen[ctx.job.id]

    sizes: list[int] = []

    @app.task(batch=5, args=Page, max_retries=0)
    async def index(batch: Batch[Page, int]) -> None:
        sizes.append(len(batch))
        batch[0].succeed(1)
        batch[1].fail(ValueError("two"))

    refuse = index.options(tags=("refuse",))
    jobs = await app.aenqueue_many([index.new_job(1), index.new_job(2), refuse.new_job(3)])
    await run_burst(app)
    assert sizes == [2]
    assert seen == {jobs[0].id: 1, jobs[1].id: "two"}
    assert await states(jobs) == [State.SUCCEEDED, State.FAILED, State.FAILED]


async def test_a_batch_has_the_state_of_the_lifespan(app: Windlass) -> None:
    found: list[Any] = []

    @app.lifespan
    async def life() -> AsyncIterator[str]:
        yield "pool"

    @app.task(batch=5, args=Page)
    async def index(batch: Batch[Page]) -> None:
        found.append(batch.state)

    await index.aenqueue(1)
    await run_burst(app)
    assert found == ["pool"]


# -- cancels, lost leases, timeouts, stops


async def test_a_cancel_reaches_its_item_and_the_call_continues(app: Windlass) -> None:
    cancelled, go = asyncio.Event(), asyncio.Event()

    @app.task(batch=2, args=Page)
    async def index(batch: Batch[Page, int]) -> None:
        while not batch[0].cancelled:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert not batch[1].cancelled
        assert not batch.cancelled
        cancelled.set()
        await go.wait()
        batch[0].succeed(1)  # too late: the cancel was accepted
        await asyncio.sleep(0.01)
        batch[1].succeed(2)

    jobs = await enqueue(app, index, 0, 1)
    async with running_worker(app, cancel_poll_interval=0.01):
        await wait_for_event(jobs[0], is_running)
        await jobs[0].acancel("enough")
        await asyncio.wait_for(cancelled.wait(), WAIT_TIMEOUT)
        assert await states(jobs) == [State.RUNNING, State.RUNNING]  # the task has not stopped yet
        go.set()
        await jobs[1].await_end(WAIT_TIMEOUT)
        await jobs[0].await_end(WAIT_TIMEOUT)
    assert await states(jobs) == [State.CANCELED, State.SUCCEEDED]
    assert await jobs[1].aresult() == 2


async def test_canceling_all_jobs_cancels_the_call(app: Windlass) -> None:
    ended: list[str] = []

    @app.task(batch=2, args=Page)
    async def index(batch: Batch[Page]) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.sleep(0.01)  # after one cancel, the task may clean up
            ended.append("cleaned up")
            raise

    jobs = await enqueue(app, index, 0, 1)
    async with running_worker(app, cancel_poll_interval=0.01):
        await wait_for_event(jobs[1], is_running)
        for job in jobs:
            await job.acancel("enough")
        for job in jobs:
            await job.await_end(WAIT_TIMEOUT)
    assert await states(jobs) == [State.CANCELED] * 2
    assert ended == ["cleaned up"]


async def test_a_job_canceled_before_the_call_starts_is_not_in_it(app: Windlass) -> None:
    go = asyncio.Event()
    seen: list[int] = []

    @app.middleware
    async def slow(ctx: Context, call_next: Callable[[], Awaitable[Any]]) -> Any:
        if ctx.job.tags:
            await go.wait()
        return await call_next()

    @app.task(batch=2, args=Page)
    async def index(batch: Batch[Page]) -> None:
        seen.extend(page.args.number for page in batch)

    late = index.options(tags=("late",))
    jobs = await app.aenqueue_many([index.new_job(1), late.new_job(2)])
    async with running_worker(app, cancel_poll_interval=0.01):
        await wait_for_event(jobs[0], is_running)
        await jobs[0].acancel("enough")
        await jobs[0].await_end(WAIT_TIMEOUT)
        go.set()
        await jobs[1].await_end(WAIT_TIMEOUT)
    assert await states(jobs) == [State.CANCELED, State.SUCCEEDED]
    assert seen == [2]


async def test_a_call_is_cancelled_once_per_reason_and_may_clean_up(app: Windlass) -> None:
    started, swallowed = asyncio.Event(), asyncio.Event()
    ended: list[str] = []

    @app.task(batch=4, args=Page)
    async def index(batch: Batch[Page]) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:  # from the cancel of all jobs
            for page in batch[:2]:
                page.fail(Cancel("canceled by the task"))
                await asyncio.sleep(0.01)
            swallowed.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:  # from the stop of the worker
            await asyncio.sleep(0.01)
            ended.append("cleaned up")
            raise

    jobs = await enqueue(app, index, *range(4))
    async with running_worker(app, cancel_poll_interval=0.01, grace=0.0):
        await asyncio.wait_for(started.wait(), WAIT_TIMEOUT)
        for job in jobs:
            await job.acancel("enough")
        await asyncio.wait_for(swallowed.wait(), WAIT_TIMEOUT)
    assert ended == ["cleaned up"]
    assert await states(jobs) == [State.CANCELED] * 4


async def test_a_lost_lease_prevents_only_the_settle_of_its_own_job() -> None:
    app = Windlass("memory:", clock=VirtualClock())  # no lease expires by itself

    @app.task(batch=2, args=Page)
    async def index(batch: Batch[Page, str]) -> None:
        while not batch[0].cancelled:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        for page in batch:
            page.succeed("done")

    jobs = await enqueue(app, index, 0, 1)
    store = app.client().store
    async with running_worker(app, lease=0.3):
        await wait_for_event(jobs[0], is_running)
        [row] = await store.get([jobs[0].id])
        assert row is not None
        await set_paused(store, ["default"], paused=True)
        await store.apply([settle(row, Released(), random=no_jitter)])  # without the worker
        await jobs[1].await_end(WAIT_TIMEOUT)
    assert await states(jobs) == [State.QUEUED, State.SUCCEEDED]
    assert jobs[0].row.result is None
    await app.aclose()


async def test_the_timeout_applies_to_the_call(app: Windlass) -> None:
    stopped: list[bool] = []

    @app.task(batch=3, args=Page, timeout=0.2, max_retries=0)
    async def index(batch: Batch[Page, str]) -> None:
        batch[0].succeed("in time")
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(all(page.cancelled for page in batch[1:]))

    jobs = await enqueue(app, index, 0, 1, 2)
    await run_burst(app)
    assert stopped == [True]
    assert await states(jobs) == [State.SUCCEEDED, State.FAILED, State.FAILED]
    assert [job.row.error.code for job in jobs[1:] if job.row.error] == ["timeout"] * 2


async def test_a_stop_cancels_the_call_and_releases_its_jobs(app: Windlass) -> None:
    started = asyncio.Event()

    @app.task(batch=3, args=Page)
    async def index(batch: Batch[Page, str]) -> None:
        batch[0].succeed("done")
        started.set()
        await asyncio.Event().wait()

    jobs = await enqueue(app, index, 0, 1, 2)
    async with running_worker(app, grace=0.0):
        await asyncio.wait_for(started.wait(), WAIT_TIMEOUT)
    rows = [(await job.arefresh()).row for job in jobs]
    assert [row.state for row in rows] == [State.SUCCEEDED, State.QUEUED, State.QUEUED]
    assert [row.retry_count for row in rows] == [0, 0, 0]


async def test_a_cancellation_inside_the_call_fails_its_jobs(app: Windlass) -> None:
    @app.task(batch=2, args=Page, max_retries=0)
    async def index(batch: Batch[Page]) -> None:
        raise asyncio.CancelledError

    jobs = await enqueue(app, index, 0, 1)
    await run_burst(app)
    assert await states(jobs) == [State.FAILED] * 2


# -- threads


async def test_a_sync_function_runs_on_a_thread_and_settles_items_from_there(app: Windlass) -> None:
    threads: set[int] = set()
    go = threading.Event()

    @app.task(batch=3, args=Page, max_retries=0)
    def index(batch: Batch[Page, str]) -> None:
        threads.add(threading.get_ident())
        batch[0].succeed("early")
        assert go.wait(WAIT_TIMEOUT)
        batch[1].fail(ValueError("rust"))

    jobs = await enqueue(app, index, 0, 1, 2)
    async with running_worker(app):
        assert await jobs[0].aresult(WAIT_TIMEOUT) == "early"
        go.set()
        with pytest.raises(JobFailedError, match="rust"):
            await jobs[1].aresult(WAIT_TIMEOUT)
        assert await jobs[2].aresult(WAIT_TIMEOUT) is None
    assert threads
    assert threading.get_ident() not in threads


async def test_jobs_of_a_batch_thread_wait_until_it_returns(app: Windlass) -> None:
    @app.task(batch=2, args=Page, timeout=0.1, max_retries=0)
    def index(batch: Batch[Page, str]) -> None:
        while not batch.cancelled:
            assert batch[0].ctx.cancel_flag.wait(WAIT_TIMEOUT)
        batch[0].succeed("after all")

    jobs = await enqueue(app, index, 0, 1)
    await run_burst(app)
    assert await states(jobs) == [State.SUCCEEDED, State.FAILED]
    assert jobs[1].row.error is not None
    assert jobs[1].row.error.code == "timeout"
    [warning] = await events_of(jobs[1], EventType.WARNING)
    assert "a thread must return" in warning.data["message"]


# -- crashes


@asynccontextmanager
async def stored(place: Path) -> AsyncIterator[Windlass]:
    app = Windlass(f"sqlite:///{place}/jobs.db?durability=off", data=place / "data")
    app.include(batch_tasks.tasks)
    yield app
    await app.aclose()


async def test_jobs_that_were_running_when_a_worker_died_run_alone_in_a_process(
    tmp_path: Path,
) -> None:
    async with stored(tmp_path) as app:
        crashed_jobs = await enqueue(app, batch_tasks.index, 0, 1)
        store = app.client().store
        await store.claim(Claim(token=uuid7(), worker="dead", queues=[("default", 2)], lease=0.01))
        async with running_worker(app):
            results = [await job.aresult(LONG) for job in crashed_jobs]
            fresh = [await job.aresult(LONG) for job in await enqueue(app, batch_tasks.index, 2, 3)]
    assert [(size, pid == os.getpid()) for size, pid in results] == [(1, False)] * 2
    assert [pid == os.getpid() for _, pid in fresh] == [True, True]


async def test_items_settled_before_a_crash_are_not_run_again(app: Windlass) -> None:
    calls: list[list[int]] = []

    @app.task(batch=5, args=Page)
    async def index(batch: Batch[Page]) -> None:
        calls.append([page.args.number for page in batch])
        if len(batch) > 1:
            batch[0].succeed()
            async with asyncio.timeout(WAIT_TIMEOUT):
                while (await jobs[0].arefresh()).state is not State.SUCCEEDED:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)

    with twin(app) as bench:
        jobs = await enqueue(app, index, 0, 1, 2)
        with bench.crash_at("before-settle", nth=2):
            assert await bench.adrain() == {State.SUCCEEDED: 1, State.RUNNING: 2}
        assert await bench.adrain(until_empty=True) == {State.SUCCEEDED: 2}
    assert calls == [[0, 1, 2], [1], [2]]


async def test_without_isolation_crashed_jobs_still_run_alone(app: Windlass) -> None:
    sizes: list[int] = []

    @app.task(batch=5, args=Page, backoff=fixed(0))
    async def index(batch: Batch[Page]) -> None:
        sizes.append(len(batch))

    jobs = await enqueue(app, index, 0, 1, 2)
    store = app.client().store
    await store.claim(Claim(token=uuid7(), worker="dead", queues=[("default", 2)], lease=0.01))
    await run_burst(app, isolate=False)
    assert sorted(sizes) == [1, 1, 1]
    assert await states(jobs) == [State.SUCCEEDED] * 3


def test_the_result_type_of_a_batch_is_optional() -> None:
    assert Batch[Page] == Batch[Page, None]
    assert Item[Page] == Item[Page, None]
