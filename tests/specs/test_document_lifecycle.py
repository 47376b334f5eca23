"""Rules of the lifecycle of a document job: its states, its retries, its data."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from tests.specs.factories import (
    FOREVER,
    SECOND,
    WAIT_TIMEOUT,
    add_probe,
    end,
    events_of,
    kill,
    pass_time,
    process,
    reach,
    retries,
    states_of,
    working,
)

from windlass import (
    ConfigurationError,
    ConflictError,
    Context,
    EncryptingCodec,
    InvalidArgumentError,
    InvalidInput,
    Job,
    JobFailedError,
    QuotaExceeded,
    State,
    TerminalError,
    Windlass,
    fixed,
)
from windlass.core.event import EventType
from windlass.task import TaskDecorator
from windlass.testing import VirtualClock

ONCE = ["queued", "running", "retrying"]


async def processed(
    app: Windlass, clock: VirtualClock, *errors: Exception | None, **options: Any
) -> Job[None]:
    """Run a document job with these outcomes, one second apart; None is a success."""

    make: TaskDecorator = app.task(name=f"document {uuid4()}", **{"backoff": fixed(1), **options})

    @make
    async def task(ctx: Context) -> None:
        error = errors[ctx.attempt - 1]
        if error is not None:
            raise error

    job = await task.aenqueue()
    async with working(app):
        for attempt in range(1, len(errors)):
            await reach(job, State.RETRYING, attempt)
            clock.advance(1)
        await job.await_end(WAIT_TIMEOUT)
    return job


# -- states and transitions


async def test_a_job_that_was_not_submitted_is_created_and_does_not_run(
    app: Windlass, clock: VirtualClock
) -> None:
    @app.task
    async def task() -> None: ...

    job = await task.options(hold=True).aenqueue()
    async with working(app):
        await pass_time(app, clock, FOREVER)
    row = (await job.arefresh()).row
    assert (row.state, row.queued_at, row.started_at) == (State.CREATED, None, None)


async def test_submitting_a_created_job_queues_it_and_only_then_it_runs(
    app: Windlass, clock: VirtualClock
) -> None:
    @app.task
    async def task() -> None: ...

    job = await task.options(hold=True).aenqueue()
    at = clock.advance(10)
    assert await job.asubmit() is State.QUEUED
    assert (await job.arefresh()).row.queued_at == at
    await end(app, job)
    assert await states_of(job) == ["created", "queued", "running", "succeeded"]


async def test_no_job_returns_to_an_earlier_state(app: Windlass) -> None:
    @app.task
    async def task(fail: bool) -> None:
        if fail:
            raise OSError
        await asyncio.sleep(FOREVER)

    queued = await task.options(queue="unconsumed").aenqueue(fail=False)
    running, retrying = await task.aenqueue(fail=False), await task.aenqueue(fail=True)
    async with working(app):
        await reach(running, State.RUNNING)
        await reach(retrying, State.RETRYING)
        for job in (queued, running, retrying):
            before = (await job.arefresh()).row
            for verb in (job.asubmit, job.aretry, job.aresume):
                with pytest.raises(ConflictError):
                    await verb()
            assert (await job.arefresh()).row == before


async def test_a_running_job_is_requeued_only_by_a_retry(
    app: Windlass, clock: VirtualClock
) -> None:
    """A shutdown also requeues it: its events show both transitions."""

    @app.task
    async def task(ctx: Context) -> None:
        if ctx.attempt == 1:
            await asyncio.sleep(FOREVER)

    job = await task.aenqueue()
    async with working(app):
        await reach(job, State.RUNNING)
    assert (await job.arefresh()).state is State.QUEUED
    row = await end(app, job)
    assert await states_of(job) == ["created", *ONCE, "queued", "running", "succeeded"]
    assert (row.retry_count, row.crash_count) == (0, 0)


async def test_a_queued_job_that_is_canceled_is_canceled_and_not_failed(app: Windlass) -> None:
    @app.task
    async def task() -> None: ...

    job = await task.aenqueue()
    assert await job.acancel() is State.CANCELED
    assert await states_of(job) == ["created", "queued", "canceled"]


async def test_a_queued_job_that_did_not_start_in_time_fails(
    app: Windlass, clock: VirtualClock
) -> None:
    @app.task
    async def task() -> None: ...

    job = await task.options(expires_in="1m").aenqueue()
    clock.advance(60)
    row = await end(app, job)
    assert (row.state, row.started_at, row.attempt) == (State.FAILED, None, 0)
    assert await states_of(job) == ["created", "queued", "failed"]


@pytest.mark.parametrize("error", [None, InvalidInput("corrupt")], ids=["succeeded", "failed"])
async def test_a_final_state_is_permanent(
    app: Windlass, clock: VirtualClock, error: Exception | None
) -> None:
    job = await processed(app, clock, error)
    before = job.row
    for verb in (job.acancel, job.asubmit):
        with pytest.raises(ConflictError):
            await verb()
    async with working(app):
        await pass_time(app, clock, FOREVER)
    assert (await job.arefresh()).row == before


# -- failures


@pytest.mark.parametrize(
    "error",
    [BlockingIOError("busy"), TimeoutError("deadline"), ConnectionError("no answer")],
    ids=lambda error: type(error).__name__,
)
async def test_a_transient_failure_is_retried(
    app: Windlass, clock: VirtualClock, error: Exception
) -> None:
    job = await processed(app, clock, error, None)
    assert await states_of(job) == ["created", *ONCE, "queued", "running", "succeeded"]
    [failed] = await retries(job)
    assert failed.data["error"]["kind"] == "RETRYABLE"


async def test_a_timeout_is_retried_unless_it_is_declared_terminal(
    live: Windlass,
) -> None:
    async def slow() -> None:
        await asyncio.sleep(FOREVER)

    options: dict[str, Any] = {"timeout": 0.05, "max_retries": 1, "backoff": fixed(0)}
    passing = live.task(name="passing", **options)(slow)
    permanent = live.task(name="permanent", terminal_on=TimeoutError, **options)(slow)
    jobs = [await passing.aenqueue(), await permanent.aenqueue()]
    async with working(live):
        rows = [(await job.await_end(WAIT_TIMEOUT)).row for job in jobs]
    assert [(row.state, row.attempt) for row in rows] == [(State.FAILED, 2), (State.FAILED, 1)]
    assert [row.error and row.error.code for row in rows] == ["timeout", "timeout"]


@pytest.mark.parametrize("kind", [InvalidInput, ConfigurationError, QuotaExceeded])
async def test_a_terminal_failure_ends_the_job(
    app: Windlass, clock: VirtualClock, kind: type[TerminalError]
) -> None:
    job = await processed(app, clock, kind("for good"))
    assert await states_of(job) == ["created", "queued", "running", "failed"]
    assert job.row.retry_count == 0


async def test_an_invalid_job_is_refused_at_enqueue(app: Windlass) -> None:
    @app.task
    async def task(pages: int) -> None: ...

    with pytest.raises(InvalidArgumentError, match="pages"):
        await task.aenqueue("many")  # type: ignore[arg-type]


# -- the retry policy


async def test_a_retry_waits_one_second_and_is_queued_only_then(
    app: Windlass, clock: VirtualClock
) -> None:
    @app.task(backoff=fixed())
    async def task(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise OSError

    job = await task.aenqueue()
    async with working(app):
        row = await reach(job, State.RETRYING)
        assert row.due_at == row.updated_at + SECOND
        await pass_time(app, clock, 0.99)
        assert (await job.arefresh()).state is State.RETRYING
        clock.advance(0.01)
        assert (await job.await_end(WAIT_TIMEOUT)).state is State.SUCCEEDED


async def test_after_three_retries_the_next_failure_is_the_last(
    app: Windlass, clock: VirtualClock
) -> None:
    error = ConnectionError("unavailable")
    job = await processed(app, clock, error, error, error, error)
    assert await states_of(job) == ["created", *ONCE, *ONCE, *ONCE, "queued", "running", "failed"]
    assert [event.data["retryCount"] for event in await retries(job)] == [1, 2, 3]
    assert (job.row.retry_count, job.row.policy.max_retries) == (3, 3)


async def test_retries_of_simultaneous_failures_are_spread(
    app: Windlass, clock: VirtualClock
) -> None:
    runs = 0

    @app.task(backoff=fixed(1))
    async def task() -> None:
        nonlocal runs
        runs += 1
        raise OSError

    jobs = await app.aenqueue_many([task.new_job() for _ in range(20)])
    async with working(app):
        for job in jobs:
            await reach(job, State.RETRYING)
        await pass_time(app, clock, 0.5)
        assert runs == 20


# -- data of a job


async def test_the_id_is_a_uuid_and_never_changes(app: Windlass, clock: VirtualClock) -> None:
    job_id = uuid4()
    seen = []

    @app.task(backoff=fixed(0))
    async def task(ctx: Context) -> None:
        seen.append(ctx.job.id)
        if ctx.attempt == 1:
            raise OSError

    job = await task.options(id=job_id).aenqueue()
    row = await end(app, job)
    assert [*seen, row.id] == [job_id] * 3


async def test_instants_are_set_when_their_state_is_reached(
    app: Windlass, clock: VirtualClock
) -> None:
    go = asyncio.Event()

    @app.task
    async def task() -> None:
        await go.wait()

    job = await task.aenqueue()
    created = clock.now()
    assert (job.row.created_at, job.row.started_at, job.row.ended_at) == (created, None, None)
    started = clock.advance(5)
    async with working(app):
        row = await reach(job, State.RUNNING)
        assert (row.created_at, row.started_at, row.ended_at) == (created, started, None)
        over = clock.advance(5)
        go.set()
        row = (await job.await_end(WAIT_TIMEOUT)).row
    assert (row.created_at, row.started_at, row.ended_at) == (created, started, over)


async def test_a_job_that_waits_for_its_retry_has_no_new_start(
    app: Windlass, clock: VirtualClock
) -> None:
    @app.task(backoff=fixed(1), queue="documents")
    async def task() -> None:
        raise OSError

    job = await task.aenqueue()
    first = clock.now()
    async with working(app, queues={"documents": 1}):
        await reach(job, State.RETRYING)
    clock.advance(1)
    async with working(app):  # promotes the job, but does not run it
        row = await reach(job, State.QUEUED, attempt=1)
    assert (row.started_at, row.first_started_at) == (None, first)


async def test_the_last_error_is_kept_with_its_type_and_message(
    app: Windlass, clock: VirtualClock
) -> None:
    job = await processed(app, clock, ConnectionError("no answer"), InvalidInput("page 3 is torn"))
    row = job.row
    assert row.error is not None
    assert (row.error.kind, row.error.attempt) == ("TERMINAL", 2)
    with pytest.raises(JobFailedError, match="InvalidInput: page 3 is torn"):
        await job.aresult()


async def test_a_succeeded_job_has_no_error_after_a_failed_attempt(
    app: Windlass, clock: VirtualClock
) -> None:
    job = await processed(app, clock, ConnectionError("no answer"), None)
    assert (job.row.error, job.row.retry_count) == (None, 1)


# -- guarantees


async def test_a_running_job_is_claimed_by_no_other_worker(
    app: Windlass, clock: VirtualClock
) -> None:
    workers = []

    @app.task
    async def task(ctx: Context) -> None:
        workers.append(ctx.job.worker)
        await asyncio.sleep(FOREVER)

    job = await task.aenqueue()
    async with working(app, slots=1):
        await reach(job, State.RUNNING)
        async with working(app):
            await pass_time(app, clock, 20)
            assert len(workers) == 1


async def test_the_job_of_a_killed_worker_still_ends(file: str, tmp_path: Path) -> None:
    die_at_work = """
        import asyncio, os, signal, sys
        from windlass import Windlass
        app = Windlass(sys.argv[1])
        @app.task(name="document")
        async def document() -> None:
            os.kill(os.getpid(), signal.SIGKILL)
        asyncio.run(app.worker().run())
    """
    app = Windlass(file)

    @app.task(name="document", lease=0.3)
    async def document(ctx: Context) -> int:
        return ctx.attempt

    job = await document.aenqueue()
    with process(die_at_work, file) as child:
        await asyncio.to_thread(child.wait, WAIT_TIMEOUT)
        kill(child)
    assert (await job.arefresh()).state is State.RUNNING
    await end(app, job)
    assert await job.aresult() == 2
    await app.aclose()


async def test_a_job_that_always_kills_its_worker_fails_at_its_crash_cap(
    app: Windlass, clock: VirtualClock
) -> None:
    @app.task(lease=30, backoff=fixed(1))
    async def task() -> None:
        await asyncio.sleep(FOREVER)

    job = await task.aenqueue()
    async with working(app, name="sweeping"):
        for attempt in (1, 2, 3):
            await reach(job, State.RUNNING, attempt)
            await pass_time(app, clock, 31)
            clock.advance(1)
        row = (await job.await_end(WAIT_TIMEOUT)).row
    assert row.error is not None
    assert (row.state, row.error.code) == (State.FAILED, "crashed")
    assert (row.crash_count, row.retry_count) == (3, 0)


async def test_every_state_change_is_one_event(app: Windlass, clock: VirtualClock) -> None:
    job = await processed(app, clock, OSError(), OSError(), None)
    events = await events_of(job)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert {event.type for event in events} == {EventType.JOB_STATUS, EventType.JOB_COMPLETED}
    assert await states_of(job) == ["created", *ONCE, *ONCE, "queued", "running", "succeeded"]


async def test_a_job_with_an_encrypted_payload_works_the_same(
    url: str, clock: VirtualClock
) -> None:
    app = Windlass(url, clock=clock, codec=EncryptingCodec({"k1": os.urandom(32)}))
    add_probe(app)
    secret = "the testament"

    @app.task(backoff=fixed(1), max_retries=1)
    async def task(ctx: Context, text: str) -> str:
        ctx.log(text)
        if ctx.attempt == 1:
            raise OSError(text)
        return text

    job = await task.aenqueue(secret)
    async with working(app):
        row = await reach(job, State.RETRYING)
        assert row.error is not None
        clock.advance(1)
        assert await job.aresult(WAIT_TIMEOUT) == secret
    stored = [row.payload, row.error.body, job.row.result]
    stored += [event.body for event in await events_of(job)]
    assert all(secret.encode() not in (data or b"") for data in stored)
    assert sum(data is not None for data in stored) >= 5
    assert await states_of(job) == ["created", *ONCE, "queued", "running", "succeeded"]
    await app.aclose()
