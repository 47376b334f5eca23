"""Outcomes of an attempt: result, error, timeout, snooze, cancel."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any, NoReturn

import pytest
from tests.worker.factories import (
    PATIENCE,
    Spy,
    config,
    events_of,
    eventually,
    run_one,
    running,
    until,
    work_off,
    working,
)

from windlass import (
    Cancel,
    Context,
    Job,
    JobFailedError,
    RetryAfter,
    Snooze,
    TerminalError,
    Windlass,
    fixed,
)
from windlass.core import errors
from windlass.core.clock import SECOND
from windlass.core.codec import JsonCodec, Purpose
from windlass.core.decisions.outcome import Snoozed
from windlass.core.event import EventType
from windlass.core.job.failure import CRASHED, TIMEOUT, UNKNOWN_TASK, ErrorKind
from windlass.core.job.retry_policy import custom
from windlass.core.job.row import JobRow
from windlass.core.job.state import State, Trigger
from windlass.core.size_limits import MAX_BLOB, MAX_TRACEBACK
from windlass.testing.clock import VirtualClock
from windlass.testing.factories import claim_one, settle_one, sweep_all
from windlass.worker.error_info import PACKAGE_DIR
from windlass.worker.unknown_tasks import UNKNOWN_TASK_DELAY


@pytest.fixture
async def app() -> AsyncIterator[Windlass]:
    app = Windlass("memory:")
    yield app
    await app.aclose()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def timed(clock: VirtualClock) -> AsyncIterator[Windlass]:
    """An app whose store has the virtual clock."""
    app = Windlass("memory:", clock=clock)
    yield app
    await app.aclose()


def stored_error(app: Windlass, row: JobRow) -> dict[str, Any]:
    """Decode the stored error."""
    assert row.error is not None
    assert row.error.body is not None
    found: dict[str, Any] = app.codec.decode(row.error.body, Purpose.ERROR)
    return found


# -- values


async def test_an_async_task_runs_and_returns_its_result(app: Windlass) -> None:
    @app.task
    async def add(a: int, b: int = 2) -> int:
        return a + b

    job = await add.aenqueue(1)
    row = await run_one(app, job)
    assert (row.state, row.percent, row.attempt) == (State.SUCCEEDED, 100, 1)
    assert await job.aresult() == 3


async def test_a_sync_task_runs_on_a_thread_of_its_own(app: Windlass) -> None:
    @app.task
    def where(a: str) -> str:
        return f"{a} on {threading.current_thread().name}"

    job = await where.aenqueue("ran")
    await run_one(app, job)
    assert (await job.aresult()).startswith("ran on windlass-task")


async def test_as_many_sync_tasks_run_at_once_as_there_are_slots(app: Windlass) -> None:
    together = threading.Barrier(5)

    @app.task
    def meet() -> int:
        return together.wait(PATIENCE)

    jobs = await app.aenqueue_many([meet.new_job() for _ in range(5)])
    await work_off(app, queues={"default": 5})
    assert sorted([await job.aresult() for job in jobs]) == [0, 1, 2, 3, 4]


async def test_the_context_identifies_the_attempt(app: Windlass) -> None:
    @app.task
    async def identify(ctx: Context) -> list[Any]:
        return [str(ctx.job.id), ctx.attempt, ctx.fence, ctx.cancelled]

    job = await identify.aenqueue()
    await run_one(app, job)
    assert await job.aresult() == [str(job.id), 1, 1, False]


async def test_arguments_that_no_longer_fit_end_the_job_at_once(app: Windlass) -> None:
    old = Windlass("memory:")

    @old.task(name="resize")
    async def before(height: str) -> None: ...

    @app.task(name="resize")
    async def now(height: int) -> None: ...

    [answer] = await app.client().enqueue([before.new_job("tall")])
    job: Job[None] = Job(app, answer.row or pytest.fail("no row"))
    row = await run_one(app, job)
    assert (row.state, row.attempt) == (State.FAILED, 1)
    assert row.error is not None
    assert (row.error.code, row.error.kind) == ("invalid_input", ErrorKind.TERMINAL)
    assert "argument 'height'" in stored_error(app, row)["message"]


@pytest.mark.parametrize(
    "result", [object(), float("nan"), "x" * MAX_BLOB], ids=["odd", "nan", "big"]
)
async def test_a_result_that_cannot_be_stored_fails_the_job_with_that_error(
    app: Windlass, result: Any
) -> None:
    @app.task(max_retries=3)
    async def task() -> Any:
        return result

    row = await run_one(app, await task.aenqueue())
    assert (row.state, row.attempt) == (State.FAILED, 1)  # to do it again would not help
    assert row.error is not None
    assert row.error.code == "invalid_result"
    assert "result" in stored_error(app, row)["message"]


# -- errors


async def test_an_error_is_retried_by_the_policy_until_it_is_exhausted(app: Windlass) -> None:
    @app.task(max_retries=2, backoff=fixed(0))
    async def fails(ctx: Context) -> NoReturn:
        raise ValueError(f"in attempt {ctx.attempt}")

    job = await fails.aenqueue()
    row = await run_one(app, job)
    assert (row.state, row.attempt, row.retry_count) == (State.FAILED, 3, 2)
    assert row.error is not None
    assert (row.error.code, row.error.kind) == ("ValueError", ErrorKind.RETRYABLE)
    attempts = await app.client().store.attempts(job.id)
    assert attempts is not None
    assert [attempt.outcome for attempt in attempts] == [Trigger.RETRY, Trigger.RETRY, Trigger.FAIL]


async def test_an_error_that_passes_leaves_a_success_without_an_error(app: Windlass) -> None:
    @app.task(backoff=fixed(0))
    def settles_down(ctx: Context) -> int:
        if ctx.attempt < 3:
            raise ConnectionError
        return ctx.attempt

    job = await settles_down.aenqueue()
    row = await run_one(app, job)
    assert await job.aresult() == 3
    assert (row.retry_count, row.error) == (2, None)


async def test_the_delay_before_a_retry_is_the_policys(timed: Windlass) -> None:
    @timed.task(backoff=fixed(40))
    async def fails() -> NoReturn:
        raise ValueError

    job = await fails.aenqueue()
    async with working(timed):
        await until(job, lambda event: event.data.get("status") == "retrying")
    row = (await job.arefresh()).row
    assert row.due_at == row.updated_at + 40 * SECOND


async def test_an_error_keeps_its_message_and_the_end_of_its_traceback(app: Windlass) -> None:
    @app.task(max_retries=0)
    def deep(n: int) -> NoReturn:
        raise ValueError("the bottom")

    job: Job[Any] = await deep.aenqueue(1)
    row = await run_one(app, job)
    found = stored_error(app, row)
    assert (found["type"], found["message"]) == ("ValueError", "the bottom")
    assert "in deep" in found["traceback"]
    with pytest.raises(JobFailedError, match="the bottom") as caught:
        await job.aresult()
    assert caught.value.remote_traceback == found["traceback"]
    assert caught.value.state == "failed"


@pytest.mark.parametrize("sort", ["async", "thread"])
async def test_a_traceback_begins_in_the_users_code_and_so_does_its_cause(
    app: Windlass, sort: str
) -> None:
    def broken(n: int) -> None:
        try:
            json.loads("{")
        except ValueError as error:
            raise RuntimeError("the top") from error

    async def abroken(n: int) -> None:
        broken(n)

    task = app.task(max_retries=0)(abroken if sort == "async" else broken)
    found = stored_error(app, await run_one(app, await task.aenqueue(1)))["traceback"]
    cause, top = found.split("The above exception was the direct cause")
    for one in (cause, top):
        files = re.findall(r'File "([^"]+)", line', one)
        assert files[0] == __file__, one
        assert not any(file.startswith(PACKAGE_DIR) for file in files)
    assert "in loads" in cause  # what the user called stays
    assert "in broken" in top


async def test_a_traceback_without_the_users_code_is_kept_whole(app: Windlass) -> None:
    @app.task(max_retries=0)
    async def odd() -> object:
        return object()  # which no codec takes

    found = stored_error(app, await run_one(app, await odd.aenqueue()))["traceback"]
    files = re.findall(r'File "([^"]+)", line', found)
    assert files
    assert files[0].startswith(PACKAGE_DIR)


@pytest.mark.parametrize(
    "message", ["x" * 3_000_000, "\x00" * 100_000, "lone \ud800 surrogate", "漢" * 90_000]
)
async def test_no_message_is_too_long_or_too_odd_to_end_a_job(app: Windlass, message: str) -> None:
    @app.task(max_retries=0)
    async def task() -> NoReturn:
        raise ValueError(message)

    row = await run_one(app, await task.aenqueue())
    assert row.state is State.FAILED
    assert row.error is not None
    assert row.error.code == "ValueError"
    found = stored_error(app, row)
    assert found["message"][:4] == message[:4]
    assert len((found["traceback"] or "").encode()) <= MAX_TRACEBACK


class WordlessError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    "error", [WordlessError(), SystemExit(1), StopIteration(), BaseException("x")]
)
@pytest.mark.parametrize("threaded", [True, False])
async def test_whatever_a_task_raises_fails_it_and_nothing_else(
    app: Windlass, error: BaseException, threaded: bool
) -> None:
    @app.task(name="fails", max_retries=0)
    async def fails() -> NoReturn:
        raise error

    if threaded:
        app.tasks = type(app.tasks)()

        @app.task(name="fails", max_retries=0)
        def fails_on_a_thread() -> NoReturn:
            raise error

    @app.task
    async def fine() -> int:
        return 1

    bad, good = await app.aenqueue_many([fails.new_job(), fine.new_job()])
    async with working(app, queues={"default": 1}):
        assert (await bad.await_end(PATIENCE)).state is State.FAILED
        assert await good.aresult(PATIENCE) == 1


async def test_a_cancellation_from_within_is_an_error_and_no_cancel(app: Windlass) -> None:
    """Something that the task awaits is cancelled, without a stop request."""

    @app.task(max_retries=1, backoff=fixed(0))
    async def task(ctx: Context) -> int:
        if ctx.attempt == 1:
            future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            future.cancel()
            await future
        return ctx.attempt

    job = await task.aenqueue()
    row = await run_one(app, job)
    assert (row.state, row.retry_count) == (State.SUCCEEDED, 1)


async def test_a_failing_backoff_function_falls_back_to_the_stored_policy(app: Windlass) -> None:
    def broken(n: int) -> float:
        raise RuntimeError("no number")

    @app.task(max_retries=1, backoff=custom(broken, fallback=fixed(0)))
    async def fails() -> NoReturn:
        raise ValueError

    row = await run_one(app, await fails.aenqueue())
    assert (row.state, row.retry_count) == (State.FAILED, 1)


# -- what a task asks for


async def test_retry_after_waits_for_its_delay_and_counts(timed: Windlass) -> None:
    @timed.task(backoff=fixed(1))
    async def busy() -> NoReturn:
        raise RetryAfter(300)

    job = await busy.aenqueue()
    async with working(timed):
        await until(job, lambda event: event.data.get("status") == "retrying")
    row = (await job.arefresh()).row
    assert (row.due_at, row.retry_count) == (row.updated_at + 300 * SECOND, 1)


async def test_retry_after_fails_when_no_retries_are_left(app: Windlass) -> None:
    @app.task(max_retries=1, retry_on=KeyError)
    async def busy() -> NoReturn:
        raise RetryAfter(0, "the other side is busy")

    row = await run_one(app, await busy.aenqueue())
    assert (row.state, row.retry_count) == (State.FAILED, 1)
    assert stored_error(app, row)["message"] == "the other side is busy"


async def test_a_snoozed_job_runs_later_and_is_not_counted(
    timed: Windlass, clock: VirtualClock
) -> None:
    @timed.task(max_retries=0)
    async def wait_for_it(ctx: Context) -> int:
        if ctx.attempt < 4:
            raise Snooze(3600)
        return ctx.attempt

    job = await wait_for_it.aenqueue()
    async with working(timed):
        for attempt in (1, 2, 3):
            await until(
                job,
                lambda event, n=attempt: (  # type: ignore[misc]
                    event.data.get("status") == "retrying" and event.data["attempt"] == n
                ),
            )
            clock.advance(3600)
        assert await job.aresult(PATIENCE) == 4
    assert (job.row.retry_count, job.row.crash_count) == (0, 0)


async def test_a_task_may_cancel_itself(app: Windlass) -> None:
    @app.task
    def changes_its_mind() -> NoReturn:
        raise Cancel("not needed after all")

    job: Job[Any] = await changes_its_mind.aenqueue()
    row = await run_one(app, job)
    assert (row.state, row.cancel_reason) == (State.CANCELED, "not needed after all")
    with pytest.raises(JobFailedError, match="not needed after all") as caught:
        await job.aresult()
    assert caught.value.state == "canceled"


async def test_a_reason_of_any_length_cancels(app: Windlass) -> None:
    @app.task
    async def verbose() -> NoReturn:
        raise Cancel("because " * 10_000)

    row = await run_one(app, await verbose.aenqueue())
    assert row.state is State.CANCELED
    assert (row.cancel_reason or "").startswith("because because")


@pytest.mark.parametrize(
    ("kind", "delay"), [(Snooze, -1), (RetryAfter, float("nan")), (Snooze, 1e12)]
)
async def test_an_invalid_transition_fails_the_job_with_that_error(
    app: Windlass, kind: type[Snooze | RetryAfter], delay: float
) -> None:
    @app.task(max_retries=0)
    async def impossible() -> NoReturn:
        raise kind(delay)

    row = await run_one(app, await impossible.aenqueue())
    assert row.state is State.FAILED
    assert row.error is not None
    assert row.error.code == "invalid_argument"


@pytest.mark.parametrize(
    "kind", [kind for kind in errors.TerminalError.__subclasses__() if "core" in kind.__module__]
)
async def test_a_terminal_error_is_never_retried(app: Windlass, kind: type[TerminalError]) -> None:
    @app.task
    async def task() -> NoReturn:
        raise kind("no use")

    row = await run_one(app, await task.aenqueue())
    assert (row.state, row.attempt) == (State.FAILED, 1)
    assert row.error is not None
    assert (row.error.code, row.error.kind) == (kind.code, ErrorKind.TERMINAL)


async def test_terminal_on_ends_the_job_at_those_errors_only(app: Windlass) -> None:
    @app.task(terminal_on=(LookupError,), backoff=fixed(0))
    async def task(ctx: Context) -> NoReturn:
        raise (ValueError if ctx.attempt == 1 else KeyError)("gone")

    row = await run_one(app, await task.aenqueue())
    assert (row.state, row.attempt) == (State.FAILED, 2)


async def test_retry_on_retries_those_errors_only(app: Windlass) -> None:
    @app.task(retry_on=(ConnectionError,), backoff=fixed(0))
    async def task(ctx: Context) -> NoReturn:
        raise (ConnectionResetError if ctx.attempt < 3 else ValueError)("gone")

    row = await run_one(app, await task.aenqueue())
    assert (row.state, row.attempt) == (State.FAILED, 3)
    assert row.error is not None
    assert row.error.kind is ErrorKind.TERMINAL


# -- timeouts


async def test_a_timeout_ends_an_async_task_and_is_retried(app: Windlass) -> None:
    stopped: list[int] = []

    @app.task(timeout=0.05, backoff=fixed(0))
    async def slow(ctx: Context) -> str:
        if ctx.attempt == 1:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                stopped.append(ctx.attempt)
                raise
        return "in time"

    job = await slow.aenqueue()
    row = await run_one(app, job)
    assert (await job.aresult(), stopped, row.retry_count) == ("in time", [1], 1)
    [first, _] = await app.client().store.attempts(job.id) or []
    assert first.error is not None
    assert (first.error.code, first.error.kind) == (TIMEOUT, ErrorKind.RETRYABLE)


async def test_a_timeout_begins_with_the_attempt_and_not_with_the_enqueue(
    timed: Windlass, clock: VirtualClock
) -> None:
    @timed.task(timeout=PATIENCE, max_retries=0)
    async def waits_for_hours() -> None:
        for _ in range(10):
            await asyncio.sleep(0)  # so that a timeout could strike

    job = await waits_for_hours.aenqueue()
    clock.advance(3600)
    assert (await run_one(timed, job)).state is State.SUCCEEDED


async def test_a_timeout_may_be_declared_terminal(app: Windlass) -> None:
    @app.task(timeout=0.05, terminal_on=(TimeoutError,))
    async def slow() -> None:
        await asyncio.sleep(3600)

    row = await run_one(app, await slow.aenqueue())
    assert (row.state, row.attempt) == (State.FAILED, 1)
    assert row.error is not None
    assert (row.error.code, row.error.kind) == (TIMEOUT, ErrorKind.TERMINAL)
    assert "longer than its timeout of 0.05 s" in stored_error(app, row)["message"]


async def test_a_timeout_error_of_the_tasks_own_is_not_taken_for_its_timeout(
    app: Windlass,
) -> None:
    @app.task(timeout=60, max_retries=0)
    async def calls_out() -> NoReturn:
        raise TimeoutError("the other side did not answer")

    row = await run_one(app, await calls_out.aenqueue())
    assert row.error is not None
    assert row.error.code == "TimeoutError"


async def test_a_thread_past_its_timeout_keeps_slot_and_lease_until_it_returns(
    timed: Windlass, clock: VirtualClock
) -> None:
    go, asked = threading.Event(), threading.Event()
    lease = 0.3
    calls: list[str] = []

    def look(verb: str) -> None:
        """Most of the lease passes before each extension while the thread is past its timeout."""
        if asked.is_set() and not go.is_set():
            calls.append(verb)
            if verb == "extend":
                clock.advance(0.9 * lease)

    async def more(verb: str, times: int) -> None:
        wanted = calls.count(verb) + times

        async def made() -> bool:
            assert (await job.arefresh()).state is State.RUNNING
            return calls.count(verb) >= wanted

        await eventually(made)

    @timed.task(timeout=0.05, max_retries=0)
    def stubborn(ctx: Context) -> str:
        assert ctx.cancel_flag.wait(PATIENCE)
        asked.set()
        assert go.wait(PATIENCE)
        return "too late"

    @timed.task
    async def next_one() -> int:
        return 1

    job = await stubborn.aenqueue()
    spy = Spy(timed.client().store.twin(), look)
    async with working(timed, spy, queues={"default": 1}, lease=lease):
        await until(job, running)
        follower = await next_one.aenqueue()
        assert await asyncio.to_thread(asked.wait, PATIENCE)
        try:
            await more("extend", 4)  # the lease would be long gone, were it not kept
            await more("expired", 2)  # and a sweep that began after that would have seen it
            assert (await follower.arefresh()).state is State.QUEUED
            row = (await job.arefresh()).row
            assert (row.state, row.attempt, row.crash_count) == (State.RUNNING, 1, 0)
        finally:
            go.set()
        row = (await job.await_end(PATIENCE)).row
        assert await follower.aresult(PATIENCE) == 1
    assert row.state is State.FAILED
    assert row.error is not None
    assert row.error.code == TIMEOUT
    [warning] = await events_of(job, EventType.WARNING)
    assert warning.body is not None
    assert b"still running after its timeout" in warning.body


# -- unknown tasks


async def test_an_unknown_task_is_snoozed_with_a_warning(timed: Windlass) -> None:
    store = timed.client().store
    other = Windlass("memory:")

    @other.task(name="of.tomorrow")
    async def task() -> None: ...

    [answer] = await store.enqueue([task.new_job()])
    job: Job[None] = Job(timed, answer.row or pytest.fail("no row"))
    async with working(timed):
        await until(job, lambda event: event.data.get("status") == "retrying")
    row = (await job.arefresh()).row
    assert row.due_at == row.updated_at + int(UNKNOWN_TASK_DELAY * SECOND)
    assert (row.retry_count, row.crash_count) == (0, 0)
    page = await store.events(job.id)
    assert page is not None
    [warning] = [event for event in page.events if event.type is EventType.WARNING]
    assert b"task 'of.tomorrow' is not registered" in (warning.body or b"")


class UnknownTasks:
    """A job of an unknown task, and a worker that claims it repeatedly."""

    def __init__(self, app: Windlass, clock: VirtualClock) -> None:
        self.app = app
        self.clock = clock

    async def job(self, **options: Any) -> Job[None]:
        other = Windlass("memory:")

        @other.task(name="of.tomorrow")
        async def task() -> None: ...

        [answer] = await self.app.client().enqueue([task.options(**options).new_job()])
        assert answer.row is not None
        return Job(self.app, answer.row)

    async def meet(self, job: Job[None], hours: float, *, step: float = 1800) -> JobRow:
        """Let so many hours pass; the job is met every `step` seconds."""
        async with working(self.app):
            for _ in range(int(hours * 3600 / step)):
                self.clock.advance(step)
                before = job.row.attempt
                async with asyncio.timeout(PATIENCE):
                    while True:
                        row = (await job.arefresh()).row
                        if row.final or (row.attempt > before and row.state is State.RETRYING):
                            break
                        await asyncio.sleep(0.001)
                if row.final:
                    break
        return job.row


@pytest.fixture
def unknown(timed: Windlass, clock: VirtualClock) -> UnknownTasks:
    return UnknownTasks(timed, clock)


async def test_after_a_day_of_that_the_job_fails(unknown: UnknownTasks) -> None:
    job = await unknown.job()
    row = await unknown.meet(job, hours=24)
    assert row.state is State.RETRYING
    row = await unknown.meet(job, hours=1.5)
    assert row.state is State.FAILED
    assert row.error is not None
    assert (row.error.code, row.error.kind) == (UNKNOWN_TASK, ErrorKind.TERMINAL)
    with pytest.raises(JobFailedError, match=r"no worker had the task 'of.tomorrow'"):
        await job.aresult()


async def test_a_job_that_waited_for_days_still_has_its_day(
    unknown: UnknownTasks, clock: VirtualClock
) -> None:
    job = await unknown.job(delay="3d")
    clock.advance(3 * 86_400)
    row = await unknown.meet(job, hours=2)
    assert row.state is State.RETRYING


async def test_the_day_starts_again_after_a_worker_had_the_task(
    unknown: UnknownTasks, clock: VirtualClock
) -> None:
    job = await unknown.job()
    await unknown.meet(job, hours=20)
    clock.advance(60)
    store = unknown.app.client().store
    await sweep_all(store)
    known = await claim_one(store)  # a newer worker runs it, and it snoozes of its own accord
    await settle_one(store, known, Snoozed(delay=10.0))
    row = await unknown.meet(job, hours=20)
    assert row.state is State.RETRYING


async def test_a_crash_has_its_error_code(timed: Windlass, clock: VirtualClock) -> None:
    @timed.task(crash_cap=1)
    async def killer() -> None: ...

    job = await killer.aenqueue()
    await claim_one(timed.client().store, lease=10.0)  # by a worker that dies
    clock.advance(11)
    async with working(timed):
        await job.await_end(PATIENCE)
    with pytest.raises(JobFailedError, match=CRASHED):
        await job.aresult()


def test_a_worker_needs_a_slot_and_lengths_of_time() -> None:
    def wrong() -> Iterator[dict[str, Any]]:
        yield {"queues": {}}
        yield {"queues": {"default": 0}}
        yield {"lease": 0}
        yield {"poll_interval": -1}
        yield {"sweep_interval": 0}

    for values in wrong():
        with pytest.raises(errors.ConfigurationError, match=next(iter(values))):
            config(**values)


async def test_an_error_that_the_codec_cannot_write_is_stored_by_its_code() -> None:
    class Picky(JsonCodec):
        def encode(self, value: Any, purpose: Purpose) -> bytes:
            if purpose is Purpose.ERROR:
                raise RuntimeError("no key")
            return super().encode(value, purpose)

    app = Windlass("memory:", codec=Picky())

    @app.task(max_retries=0)
    async def task() -> None:
        raise LookupError("gone")

    row = await run_one(app, await task.aenqueue())
    await app.aclose()
    assert row.state is State.FAILED
    assert row.error is not None
    assert (row.error.code, row.error.body) == ("LookupError", None)


async def test_an_error_that_is_named_crashed_is_an_error_like_any(app: Windlass) -> None:
    class crashed(Exception):  # noqa: N801, N818
        pass

    @app.task(max_retries=1, backoff=fixed(0))
    async def task() -> None:
        raise crashed

    row = await run_one(app, await task.aenqueue())
    assert (row.state, row.retry_count, row.crash_count, row.attempt) == (State.FAILED, 1, 0, 2)
