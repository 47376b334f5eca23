"""Run one claimed job and say how its attempt ended. Raises nothing of the task's own.

Async tasks run on the worker's loop, sync ones on a thread. A timeout ends an async task; a thread
cannot be stopped, so it is asked (`ctx.cancelled`) and keeps its slot until it returns. Middleware
is part of the attempt: its time counts, and what it raises is the outcome.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import traceback
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, ClassVar

from windlass.core import failure as failures
from windlass.core.clock import SECOND, Instant
from windlass.core.codec import Codec, Purpose
from windlass.core.errors import (
    Cancel,
    RetryAfter,
    Snooze,
    StoreError,
    TerminalError,
    WindlassError,
)
from windlass.core.failure import ErrorKind, Failure
from windlass.core.job import JobRow
from windlass.core.limits import KIB, MAX_BLOB, MAX_EVENT, MAX_NAME, MAX_TRACEBACK, check_size
from windlass.core.outcome import Aborted, Failed, Outcome, Snoozed, Succeeded
from windlass.core.records import Put
from windlass.store import DAY, Store
from windlass.task import Registry, TaskSpec
from windlass.worker.context import Context, storable
from windlass.worker.kit import Kit

log = logging.getLogger("windlass.worker")
UNKNOWN_TASK_DELAY = 60.0
UNKNOWN_TASK_PATIENCE = DAY
_MAX_MESSAGE = 4 * KIB


class UnknownTaskError(Exception):
    code: ClassVar[str] = failures.UNKNOWN_TASK


class AttemptTimeoutError(TimeoutError):
    """The attempt's own time ran out; a TimeoutError of the task's making is just an error."""

    code: ClassVar[str] = failures.TIMEOUT


class TaskRunner:
    def __init__(
        self, tasks: Registry, codec: Codec, threads: Executor, store: Store, kit: Kit | None = None
    ) -> None:
        self._kit = kit or Kit()
        self._tasks = tasks
        self._codec = codec
        self._threads = threads
        self._store = store

    async def run(self, job: JobRow, context: Context) -> Outcome:
        spec = self._tasks.get(job.task)
        if spec is None:
            return await self._unknown(job, context)
        try:
            arguments = spec.signature.restore(self._codec.decode(job.payload, Purpose.PAYLOAD))
            if (
                spec.is_async
                and job.policy.timeout is None
                and not self._kit.middleware.around_runs
            ):
                given = (context,) if spec.signature.takes_context else ()
                value = await spec.function(*given, **arguments)  # nothing around it
            else:
                value = await self._call(spec, job, context, arguments)
            result = self._codec.encode(spec.signature.result(value), Purpose.RESULT)
            check_size("the result", result, MAX_BLOB)
            return Succeeded(result=result)
        except (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001 - whatever a task raises is its outcome
            return self._failed(error, spec, context)

    async def _call(
        self, spec: TaskSpec, job: JobRow, context: Context, arguments: dict[str, Any]
    ) -> Any:
        given = (context,) if spec.signature.takes_context else ()
        timeout = job.policy.timeout
        middleware = self._kit.middleware
        limit = asyncio.timeout(timeout)
        over = AttemptTimeoutError(f"ran longer than its timeout of {timeout} s")

        async def task() -> Any:
            if spec.is_async:
                return await spec.function(*given, **arguments)
            running = asyncio.get_running_loop().run_in_executor(
                self._threads, _whole, lambda: spec.function(*given, **arguments)
            )
            try:
                await asyncio.wait({running})
            except asyncio.CancelledError:
                if limit.expired():
                    context.warn(
                        f"still running after its timeout of {timeout} s; a thread must return"
                    )
                await _returned(running, context)
                if limit.expired():
                    raise over from None
                raise  # it was asked to stop: what it returned may be half of the work
            return running.result()

        try:
            async with limit:
                return await middleware.run(context, task)
        except TimeoutError as error:
            if limit.expired() and error is not over:
                raise over from error
            raise

    async def _unknown(self, job: JobRow, context: Context) -> Outcome:
        """A newer deploy may know it: wait a day before giving up."""
        if job.updated_at - await self._unknown_since(job) > UNKNOWN_TASK_PATIENCE * SECOND:
            error = UnknownTaskError(f"no worker knew the task {job.task!r} for a day")
            return Failed(failure=describe(error, self._codec, kind=ErrorKind.TERMINAL))
        problem = f"this worker does not know the task {job.task!r}; looking again later"
        log.warning("job %s: %s", job.id, problem)
        context.warn(problem)
        return Snoozed(delay=UNKNOWN_TASK_DELAY)

    async def _unknown_since(self, job: JobRow) -> Instant:
        """When that began. The job may be much older: delayed, or run by others until now."""
        key = str(job.id)
        try:
            [entry] = await self._store.get_records(failures.UNKNOWN_TASK, [key])
            seen = json.loads(entry.value) if entry else None
            since: Instant = job.updated_at
            if seen is not None and seen["attempt"] >= job.attempt - 1:
                since = seen["since"]  # the attempt before this one found the same
            note = json.dumps({"attempt": job.attempt, "since": since}).encode()
            put = Put(kind=failures.UNKNOWN_TASK, key=key, value=note, ttl=2 * DAY)
            await self._store.put_records([put])
        except StoreError:
            return job.updated_at
        return since

    def _failed(self, error: BaseException, spec: TaskSpec, context: Context) -> Outcome:
        match error:
            case Snooze(delay=delay):
                return Snoozed(delay=delay)
            case Cancel(reason=reason):
                return Aborted(reason=storable(reason, _MAX_MESSAGE) or None)
        options = spec.options
        retryable = not isinstance(error, (TerminalError, *options.terminal_on))
        if options.retry_on and not isinstance(error, (RetryAfter, *options.retry_on)):
            retryable = False
        kind = ErrorKind.RETRYABLE if retryable else ErrorKind.TERMINAL
        failure = describe(error, self._codec, kind=kind, step=context.current_step)
        job = context.job
        log.warning(
            "job %s (%s), attempt %d: %s", job.id, job.task, job.attempt, failure.code,
            exc_info=(type(error), error, error.__traceback__) if log.isEnabledFor(10) else None,
        )  # fmt: skip
        return Failed(failure=failure, delay=error.delay if isinstance(error, RetryAfter) else None)


def describe(
    error: BaseException,
    codec: Codec,
    *,
    kind: ErrorKind = ErrorKind.RETRYABLE,
    step: str | None = None,
) -> Failure:
    """An error as it is stored. Never raises, and always fits: else the job could not be ended."""
    name = type(error).__name__
    try:
        message = str(error) or name
    except Exception:  # noqa: BLE001 - a message that cannot be made hides no error
        message = name
    said = {
        "type": storable(name),
        "message": storable(message, _MAX_MESSAGE),
        "traceback": _trace(error),
    }
    body = codec.encode(said, Purpose.ERROR)
    if len(body) > MAX_EVENT:  # a text full of what must be escaped
        body = codec.encode(said | {"traceback": None}, Purpose.ERROR)
    ours = WindlassError | AttemptTimeoutError | UnknownTaskError
    code = error.code if isinstance(error, ours) else name
    return Failure(code=storable(code, MAX_NAME), kind=kind, step=step, body=body)


def _whole(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except StopIteration as error:  # a future cannot carry it, and would never be done
        raise RuntimeError("the task raised StopIteration") from error
    except (KeyboardInterrupt, GeneratorExit) as error:  # on the loop, these would end the worker
        raise RuntimeError(f"the task raised {type(error).__name__}") from error


async def _returned(running: asyncio.Future[Any], context: Context) -> None:
    """Ask a thread to end, and wait until it did: it holds the slot and the lease until then."""
    context.ask_to_stop()
    while not running.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait({running})
    running.exception()


def _trace(error: BaseException) -> str:
    """The end of the traceback, where the news is."""
    text = "".join(traceback.format_exception(error))
    data = text.encode("utf-8", "replace")
    return data[-MAX_TRACEBACK:].decode("utf-8", "ignore")
