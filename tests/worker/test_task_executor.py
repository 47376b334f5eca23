"""Outcomes of an attempt: result, error, timeout, snooze, cancel."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any, NoReturn

import pytest
from tests.worker.event_waits import WAIT_TIMEOUT, events_of, eventually, is_running, wait_for_event
from tests.worker.spy_store import SpyStore
from tests.worker.workers import config, run_burst, run_to_end, running_worker

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
from windlass.worker.execution.attempt_runner import AttemptRunner
from windlass.worker.execution.error_info import PACKAGE_DIR
from windlass.worker.execution.unknown_tasks import UNKNOWN_TASK_DELAY


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
    row = await run_to_end(app, job)
    assert (row.state, row.percent, row.attempt) == (State.SUCCEEDED, 100, 1)
    assert await job.aresult() == 3


async def test_a_sync_task_runs_on_a_thread_of_its_own(app: Windlass) -> None:
    @app.task
    def where(a: str) -> str:
        return f"{a} on {threading.current_thread().name}"

    job = await where.aenqueue("ran")
    await run_to_end(app, job)
    assert (await job.aresult()).startswith("ran on windlass-task")


async def test_as_many_sync_tasks_run_at_once_as_there_are_slots(app: Windlass) -> None:
    barrier = threading.Barrier(5)

    @app.task
    def wait_at_barrier() -> int:
        return barrier.wait(WAIT_TIMEOUT)

    jobs = await app.aenqueue_many([wait_at_barrier.new_job() for _ in range(5)])
    await run_burst(app, queues={"default": 5})
    assert sorted([await job.aresult() for job in jobs]) == [0, 1, 2, 3, 4]


async def test_the_context_identifies_the_attempt(app: Windlass) -> None:
    @app.task
    async def identify(ctx: Context) -> list[Any]:
        return [str(ctx.job.id), ctx.attempt, ctx.fence, ctx.cancelled]

    job = await identify.aenqueue()
    await run_to_end(app, job)
    assert await job.aresult() == [str(job.id), 1, 1, False]


async def test_arguments_that_no_longer_match_fail_the_job_at_once(app: Windlass) -> None:
    old = Windlass("memory:")

    @old.task(name="resize")
    async def before(height: str) -> None: ...

    @app.task(name="resize")
    async def now(height: int) -> None: ...

    [result] = await app.client().enqueue([before.new_job("tall")])
    job: Job[None] = Job(app, result.row or pytest.fail("no row"))
    row = await run_to_end(app, job)
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

    row = await run_to_end(app, await task.aenqueue())
    assert (row.state, row.attempt) == (State.FAILED, 1)  # a retry would not help
    assert row.error is not None
    assert row.error.code == "invalid_result"
    assert "result" in stored_error(app, row)["message"]


# -- errors


async def test_an_error_is_retried_by_the_policy_until_it_is_exhausted(app: Windlass) -> None:
    @app.task(max_retries=2, backoff=fixed(0))
    async def fails(ctx: Context) -> NoReturn:
        raise ValueError(f"in attempt {ctx.attempt}")

    job = await fails.aenqueue()
    row = await run_to_end(app, job)
    assert (row.state, row.attempt, row.retry_count) == (State.FAILED, 3, 2)
    assert row.error is not None
    assert (row.error.code, row.error.kind) == ("ValueError", ErrorKind.RETRYABLE)
    attempts = await app.client().store.insights.attempts(job.id)
    assert attempts is not None
    assert [attempt.outcome for attempt in attempts] == [Trigger.RETRY, Trigger.RETRY, Trigger.FAIL]


async def test_a_success_after_retries_has_no_error(app: Windlass) -> None:
    @app.task(backoff=fixed(0))
    def succeeds_third(ctx: Context) -> int:
        if ctx.attempt < 3:
            raise ConnectionError
        return ctx.attempt

    job = await succeeds_third.aenqueue()
    row = await run_to_end(app, job)
    assert await job.aresult() == 3
    assert (row.retry_count, row.error) == (2, None)


async def test_the_retry_delay_follows_the_policy(timed: Windlass) -> None:
    @timed.task(backoff=fixed(40))
    async def fails() -> NoReturn:
        raise ValueError

    job = await fails.aenqueue()
    async with running_worker(timed):
        await wait_for_event(job, lambda event: event.data.get("status") == "retrying")
    row = (await job.arefresh()).row
    assert row.due_at == row.updated_at + 40 * SECOND


async def test_an_error_keeps_its_message_and_the_end_of_its_traceback(app: Windlass) -> None:
    @app.task(max_retries=0)
    def deep(n: int) -> NoReturn:
        raise ValueError("the bottom")

    job: Job[Any] = await deep.aenqueue(1)
    row = await run_to_end(app, job)
    found = stored_error(app, row)
    assert (found["type"], found["message"]) == ("ValueError", "the bottom")
    assert "in deep" in found["traceback"]
    with pytest.raises(JobFailedError, match="the bottom") as raised:
        await job.aresult()
    assert raised.value.remote_traceback == found["traceback"]
    assert raised.value.state == "failed"


@pytest.mark.parametrize("sort", ["async", "thread"])
async def test_a_traceback_and_its_cause_start_in_user_code(app: Windlass, sort: str) -> None:
    def broken(n: int) -> None:
        try:
            json.loads("{")
        except ValueError as error:
            raise RuntimeError("the top") from error

    async def abroken(n: int) -> None:
        broken(n)

    task = app.task(max_retries=0)(abroken if sort == "async" else broken)
    found = stored_error(app, await run_to_end(app, await task.aenqueue(1)))["traceback"]
    cause, top = found.split("The above exception was the direct cause")
    for section in (cause, top):
        files = re.findall(r'File "([^"]+)", line', section)
        assert files[0] == __file__, section
        assert not any(file.startswith(PACKAGE_DIR) for file in files)
    assert "in loads" in cause  # frames of libraries called by user code stay
    assert "in broken" in top


async def test_a_traceback_without_user_code_is_kept_whole(app: Windlass) -> None:
    @app.task(max_retries=0)
    async def odd() -> object:
        return object()  # no codec can encode it

    found = stored_error(app, await run_to_end(app, await odd.aenqueue()))["traceback"]
    files = re.findall(r'File "([^"]+)", line', found)
    assert files
    assert files[0].startswith(PACKAGE_DIR)


@pytest.mark.parametrize(
    "message", ["x" * 3_000_000, "\x00" * 100_000, "lone \ud800 surrogate", "漢" * 90_000]
)
async def test_an_error_message_of_any_length_and_characters_is_stored(
    app: Windlass, message: str
) -> None:
    @app.task(max_retries=0)
    async def task() -> NoReturn:
        raise ValueError(message)

    row = await run_to_end(app, await task.aenqueue())
    assert row.state is State.FAILED
    assert row.error is not None
    assert row.error.code == "ValueError"
    found = stored_error(app, row)
    assert found["message"][:4] == message[:4]
    assert len((found["traceback"] or "").encode()) <= MAX_TRACEBACK


class BrokenStrError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    "error", [BrokenStrError(), SystemExit(1), StopIteration(), BaseException("x")]
)
@pytest.mark.parametrize("threaded", [True, False])
async def test_any_exception_of_a_task_fails_only_its_job(
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
    async with running_worker(app, queues={"default": 1}):
        assert (await bad.await_end(WAIT_TIMEOUT)).state is State.FAILED
        assert await good.aresult(WAIT_TIMEOUT) == 1


async def test_a_cancellation_inside_the_task_is_an_error_and_no_cancel(app: Windlass) -> None:
    """Something that the task awaits is cancelled, without a stop request."""

    @app.task(max_retries=1, backoff=fixed(0))
    async def task(ctx: Context) -> int:
        if ctx.attempt == 1:
            future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            future.cancel()
            await future
        return ctx.attempt

    job = await task.aenqueue()
    row = await run_to_end(app, job)
    assert (row.state, row.retry_count) == (State.SUCCEEDED, 1)


async def test_a_failing_backoff_function_falls_back_to_the_stored_policy(app: Windlass) -> None:
    def broken(n: int) -> float:
        raise RuntimeError("no number")

    @app.task(max_retries=1, backoff=custom(broken, fallback=fixed(0)))
    async def fails() -> NoReturn:
        raise ValueError

    row = await run_to_end(app, await fails.aenqueue())
    assert (row.state, row.retry_count) == (State.FAILED, 1)


# -- retry, snooze and cancel by the task


async def test_retry_after_waits_for_its_delay_and_counts(timed: Windlass) -> None:
    @timed.task(backoff=fixed(1))
    async def busy() -> NoReturn:
        raise RetryAfter(300)

    job = await busy.aenqueue()
    async with running_worker(timed):
        await wait_for_event(job, lambda event: event.data.get("status") == "retrying")
    row = (await job.arefresh()).row
    assert (row.due_at, row.retry_count) == (row.updated_at + 300 * SECOND, 1)


async def test_retry_after_fails_when_no_retries_are_left(app: Windlass) -> None:
    @app.task(max_retries=1, retry_on=KeyError)
    async def busy() -> NoReturn:
        raise RetryAfter(0, "the other side is busy")

    row = await run_to_end(app, await busy.aenqueue())
    assert (row.state, row.retry_count) == (State.FAILED, 1)
    assert stored_error(app, row)["message"] == "the other side is busy"


async def test_a_snoozed_job_runs_later_and_is_not_counted(
    timed: Windlass, clock: VirtualClock
) -> None:
    @timed.task(max_retries=0)
    async def snoozes(ctx: Context) -> int:
        if ctx.attempt < 4:
            raise Snooze(3600)
        return ctx.attempt

    job = await snoozes.aenqueue()
    async with running_worker(timed):
        for attempt in (1, 2, 3):
            await wait_for_event(
                job,
                lambda event, n=attempt: (  # type: ignore[misc]
                    event.data.get("status") == "retrying" and event.data["attempt"] == n
                ),
            )
            clock.advance(3600)
        assert await job.aresult(WAIT_TIMEOUT) == 4
    assert (job.row.retry_count, job.row.crash_count) == (0, 0)


async def test_a_task_may_cancel_itself(app: Windlass) -> None:
    @app.task
    def cancels_itself() -> NoReturn:
        raise Cancel("not needed after all")

    job: Job[Any] = await cancels_itself.aenqueue()
    row = await run_to_end(app, job)
    assert (row.state, row.cancel_reason) == (State.CANCELED, "not needed after all")
    with pytest.raises(JobFailedError, match="not needed after all") as raised:
        await job.aresult()
    assert raised.value.state == "canceled"


async def test_a_cancel_reason_may_have_any_length(app: Windlass) -> None:
    @app.task
    async def verbose() -> NoReturn:
        raise Cancel("because " * 10_000)

    row = await run_to_end(app, await verbose.aenqueue())
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

    row = await run_to_end(app, await impossible.aenqueue())
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

    row = await run_to_end(app, await task.aenqueue())
    assert (row.state, row.attempt) == (State.FAILED, 1)
    assert row.error is not None
    assert (row.error.code, row.error.kind) == (kind.code, ErrorKind.TERMINAL)


async def test_terminal_on_ends_the_job_at_those_errors_only(app: Windlass) -> None:
    @app.task(terminal_on=(LookupError,), backoff=fixed(0))
    async def task(ctx: Context) -> NoReturn:
        raise (ValueError if ctx.attempt == 1 else KeyError)("gone")

    row = await run_to_end(app, await task.aenqueue())
    assert (row.state, row.attempt) == (State.FAILED, 2)


async def test_retry_on_retries_those_errors_only(app: Windlass) -> None:
    @app.task(retry_on=(ConnectionError,), backoff=fixed(0))
    async def task(ctx: Context) -> NoReturn:
        raise (ConnectionResetError if ctx.attempt < 3 else ValueError)("gone")

    row = await run_to_end(app, await task.aenqueue())
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
    row = await run_to_end(app, job)
    assert (await job.aresult(), stopped, row.retry_count) == ("in time", [1], 1)
    [first, _] = await app.client().store.insights.attempts(job.id) or []
    assert first.error is not None
    assert (first.error.code, first.error.kind) == (TIMEOUT, ErrorKind.RETRYABLE)


async def test_a_timeout_starts_with_the_attempt_and_not_with_the_enqueue(
    timed: Windlass, clock: VirtualClock
) -> None:
    @timed.task(timeout=WAIT_TIMEOUT, max_retries=0)
    async def waits_for_hours() -> None:
        for _ in range(10):
            await asyncio.sleep(0)  # a chance for the timeout to act

    job = await waits_for_hours.aenqueue()
    clock.advance(3600)
    assert (await run_to_end(timed, job)).state is State.SUCCEEDED


async def test_a_timeout_may_be_declared_terminal(app: Windlass) -> None:
    @app.task(timeout=0.05, terminal_on=(TimeoutError,))
    async def slow() -> None:
        await asyncio.sleep(3600)

    row = await run_to_end(app, await slow.aenqueue())
    assert (row.state, row.attempt) == (State.FAILED, 1)
    assert row.error is not None
    assert (row.error.code, row.error.kind) == (TIMEOUT, ErrorKind.TERMINAL)
    assert "longer than its timeout of 0.05 s" in stored_error(app, row)["message"]


async def test_a_timeout_error_raised_by_the_task_is_an_ordinary_error(
    app: Windlass,
) -> None:
    @app.task(timeout=60, max_retries=0)
    async def calls_out() -> NoReturn:
        raise TimeoutError("the other side did not answer")

    row = await run_to_end(app, await calls_out.aenqueue())
    assert row.error is not None
    assert row.error.code == "TimeoutError"


async def test_a_thread_past_its_timeout_keeps_slot_and_lease_until_it_returns(
    timed: Windlass, clock: VirtualClock
) -> None:
    go, stop_requested = threading.Event(), threading.Event()
    lease = 0.3
    calls: list[str] = []

    def on_call(verb: str) -> None:
        """While the thread is past its timeout, 0.9 of the lease pass before each extension."""
        if stop_requested.is_set() and not go.is_set():
            calls.append(verb)
            if verb == "extend":
                clock.advance(0.9 * lease)

    async def wait_for_calls(verb: str, times: int) -> None:
        wanted = calls.count(verb) + times

        async def made() -> bool:
            assert (await job.arefresh()).state is State.RUNNING
            return calls.count(verb) >= wanted

        await eventually(made)

    @timed.task(timeout=0.05, max_retries=0)
    def keeps_running(ctx: Context) -> str:
        assert ctx.cancel_flag.wait(WAIT_TIMEOUT)
        stop_requested.set()
        assert go.wait(WAIT_TIMEOUT)
        return "too late"

    @timed.task
    async def next_one() -> int:
        return 1

    job = await keeps_running.aenqueue()
    spy = SpyStore(timed.client().store.twin(), on_call)
    async with running_worker(timed, spy, queues={"default": 1}, lease=lease):
        await wait_for_event(job, is_running)
        queued_job = await next_one.aenqueue()
        assert await asyncio.to_thread(stop_requested.wait, WAIT_TIMEOUT)
        try:
            # Without extensions the lease would expire, and a later sweep would rescue the job.
            await wait_for_calls("extend", 4)
            await wait_for_calls("due", 2)
            assert (await queued_job.arefresh()).state is State.QUEUED
            row = (await job.arefresh()).row
            assert (row.state, row.attempt, row.crash_count) == (State.RUNNING, 1, 0)
        finally:
            go.set()
        row = (await job.await_end(WAIT_TIMEOUT)).row
        assert await queued_job.aresult(WAIT_TIMEOUT) == 1
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

    @other.task(name="of.newer.deploy")
    async def task() -> None: ...

    [result] = await store.enqueue([task.new_job()])
    job: Job[None] = Job(timed, result.row or pytest.fail("no row"))
    async with running_worker(timed):
        await wait_for_event(job, lambda event: event.data.get("status") == "retrying")
    row = (await job.arefresh()).row
    assert row.due_at == row.updated_at + int(UNKNOWN_TASK_DELAY * SECOND)
    assert (row.retry_count, row.crash_count) == (0, 0)
    page = await store.events(job.id)
    assert page is not None
    [warning] = [event for event in page.events if event.type is EventType.WARNING]
    assert b"task 'of.newer.deploy' is not registered" in (warning.body or b"")


class UnknownTasks:
    """A job of an unknown task, and a worker that claims it repeatedly."""

    def __init__(self, app: Windlass, clock: VirtualClock) -> None:
        self.app = app
        self.clock = clock

    async def job(self, **options: Any) -> Job[None]:
        other = Windlass("memory:")

        @other.task(name="of.newer.deploy")
        async def task() -> None: ...

        [result] = await self.app.client().enqueue([task.options(**options).new_job()])
        assert result.row is not None
        return Job(self.app, result.row)

    async def run_for(self, job: Job[None], hours: float, *, step: float = 1800) -> JobRow:
        """Let these hours pass; the worker claims the job every `step` seconds."""
        async with running_worker(self.app):
            for _ in range(int(hours * 3600 / step)):
                self.clock.advance(step)
                before = job.row.attempt
                async with asyncio.timeout(WAIT_TIMEOUT):
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


async def test_a_job_of_an_unknown_task_fails_after_a_day(unknown: UnknownTasks) -> None:
    job = await unknown.job()
    row = await unknown.run_for(job, hours=24)
    assert row.state is State.RETRYING
    row = await unknown.run_for(job, hours=1.5)
    assert row.state is State.FAILED
    assert row.error is not None
    assert (row.error.code, row.error.kind) == (UNKNOWN_TASK, ErrorKind.TERMINAL)
    with pytest.raises(JobFailedError, match=r"no worker had the task 'of.newer.deploy'"):
        await job.aresult()


async def test_the_day_of_an_unknown_task_starts_with_its_first_attempt(
    unknown: UnknownTasks, clock: VirtualClock
) -> None:
    job = await unknown.job(delay="3d")
    clock.advance(3 * 86_400)
    row = await unknown.run_for(job, hours=2)
    assert row.state is State.RETRYING


async def test_the_day_of_an_unknown_task_restarts_after_a_worker_had_it(
    unknown: UnknownTasks, clock: VirtualClock
) -> None:
    job = await unknown.job()
    await unknown.run_for(job, hours=20)
    clock.advance(60)
    store = unknown.app.client().store
    await sweep_all(store)
    known = await claim_one(store)  # a newer worker runs the job, and its task snoozes it
    await settle_one(store, known, Snoozed(delay=10.0))
    row = await unknown.run_for(job, hours=20)
    assert row.state is State.RETRYING


async def test_a_crash_has_its_error_code(timed: Windlass, clock: VirtualClock) -> None:
    @timed.task(crash_cap=1)
    async def killer() -> None: ...

    job = await killer.aenqueue()
    await claim_one(timed.client().store, lease=10.0)  # by a worker that dies
    clock.advance(11)
    async with running_worker(timed):
        await job.await_end(WAIT_TIMEOUT)
    with pytest.raises(JobFailedError, match=CRASHED):
        await job.aresult()


def test_invalid_worker_settings_are_refused() -> None:
    def wrong() -> Iterator[dict[str, Any]]:
        yield {"queues": {}}
        yield {"queues": {"default": 0}}
        yield {"lease": 0}
        yield {"poll_interval": -1}
        yield {"sweep_interval": 0}

    for values in wrong():
        with pytest.raises(errors.ConfigurationError, match=next(iter(values))):
            config(**values)


async def test_an_error_that_the_codec_cannot_encode_is_stored_without_a_body() -> None:
    class ErrorlessCodec(JsonCodec):
        def encode(self, value: Any, purpose: Purpose) -> bytes:
            if purpose is Purpose.ERROR:
                raise RuntimeError("no key")
            return super().encode(value, purpose)

    app = Windlass("memory:", codec=ErrorlessCodec())

    @app.task(max_retries=0)
    async def task() -> None:
        raise LookupError("gone")

    row = await run_to_end(app, await task.aenqueue())
    await app.aclose()
    assert row.state is State.FAILED
    assert row.error is not None
    assert (row.error.code, row.error.body) == ("LookupError", None)


async def test_an_error_named_crashed_is_an_ordinary_error(app: Windlass) -> None:
    class crashed(Exception):  # noqa: N801, N818
        pass

    @app.task(max_retries=1, backoff=fixed(0))
    async def task() -> None:
        raise crashed

    row = await run_to_end(app, await task.aenqueue())
    assert (row.state, row.retry_count, row.crash_count, row.attempt) == (State.FAILED, 1, 0, 2)


async def test_an_attempt_whose_context_cannot_be_created_is_settled(
    app: Windlass, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise its lease would be extended until the worker stops."""

    @app.task(max_retries=0)
    async def task() -> None: ...

    def fail(*_: Any) -> Context:
        raise ValueError("no context")

    monkeypatch.setattr(AttemptRunner, "_context", fail)
    job = await task.aenqueue()
    await run_burst(app)
    row = (await job.arefresh()).row
    assert row.state is State.FAILED
    assert row.error is not None
    assert row.error.code == "ValueError"
