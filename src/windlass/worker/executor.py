"""Run one claimed job and say how its attempt ended. Raises nothing of the task's own.

Async tasks run on the worker's loop, sync ones on a thread. A timeout ends an async task; a thread
cannot be stopped, so it is asked (`ctx.cancelled`) and keeps its slot until it returns.
"""

from __future__ import annotations

import asyncio
import contextlib
import traceback
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

from windlass.core import failure as failures
from windlass.core.codec import Codec, Purpose
from windlass.core.errors import Cancel, RetryAfter, Snooze, TerminalError, WindlassError
from windlass.core.failure import ErrorKind, Failure
from windlass.core.job import JobRow
from windlass.core.limits import MAX_BLOB, MAX_TRACEBACK, check_size
from windlass.core.outcome import Aborted, Failed, Outcome, Snoozed, Succeeded
from windlass.task import Registry, TaskSpec
from windlass.worker.context import Context

UNKNOWN_TASK_DELAY = 60.0
UNKNOWN_TASK_PATIENCE = 86_400 * 1_000_000


class TaskRunner:
    def __init__(self, tasks: Registry, codec: Codec, threads: Executor) -> None:
        self._tasks = tasks
        self._codec = codec
        self._threads = threads

    async def run(self, job: JobRow, context: Context) -> Outcome:
        spec = self._tasks.get(job.task)
        if spec is None:
            return self._unknown(job, context)
        try:
            arguments = spec.signature.restore(self._codec.decode(job.payload, Purpose.PAYLOAD))
            value = await self._call(spec, job, context, arguments)
            result = self._codec.encode(spec.signature.result(value), Purpose.RESULT)
            check_size("the result", result, MAX_BLOB)
            return Succeeded(result=result)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - whatever a task raises is its outcome
            return self._failed(error, spec, context)

    async def _call(
        self, spec: TaskSpec, job: JobRow, context: Context, arguments: dict[str, Any]
    ) -> Any:
        given = (context,) if spec.signature.takes_context else ()
        timeout = job.policy.timeout
        if spec.is_async:
            async with asyncio.timeout(timeout):
                return await spec.function(*given, **arguments)
        call: Callable[[], Any] = lambda: spec.function(*given, **arguments)  # noqa: E731
        running = asyncio.get_running_loop().run_in_executor(self._threads, call)
        try:
            done, _ = await asyncio.wait({running}, timeout=timeout)
        except asyncio.CancelledError:
            await _returned(running, context)
            raise
        if not done:
            context.warn(f"still running after its timeout of {timeout} s; a thread must return")
            await _returned(running, context)
            raise TimeoutError(f"ran longer than its timeout of {timeout} s")
        return running.result()

    def _unknown(self, job: JobRow, context: Context) -> Outcome:
        """A newer deploy may know it: wait a day before giving up."""
        waited = job.updated_at - job.created_at
        if waited > UNKNOWN_TASK_PATIENCE:
            said = {"type": "UnknownTask", "message": f"no worker knew {job.task!r} for a day"}
            body = self._codec.encode(said, Purpose.ERROR)
            failure = Failure(code=failures.UNKNOWN_TASK, kind=ErrorKind.TERMINAL, body=body)
            return Failed(failure=failure)
        context.warn(f"this worker does not know the task {job.task!r}; looking again later")
        return Snoozed(delay=UNKNOWN_TASK_DELAY)

    def _failed(self, error: Exception, spec: TaskSpec, context: Context) -> Outcome:
        match error:
            case Snooze(delay=delay):
                return Snoozed(delay=delay)
            case Cancel(reason=reason):
                return Aborted(reason=reason or None)
        options = spec.options
        retryable = not isinstance(error, (TerminalError, *options.terminal_on))
        if options.retry_on and not isinstance(error, (RetryAfter, *options.retry_on)):
            retryable = False
        said = {
            "type": type(error).__name__,
            "message": str(error) or type(error).__name__,
            "traceback": _trace(error),
        }
        failure = Failure(
            code=_code(error),
            kind=ErrorKind.RETRYABLE if retryable else ErrorKind.TERMINAL,
            step=context.current_step,
            body=self._codec.encode(said, Purpose.ERROR),
        )
        return Failed(failure=failure, delay=error.delay if isinstance(error, RetryAfter) else None)


async def _returned(running: asyncio.Future[Any], context: Context) -> None:
    """Ask a thread to end, and wait until it did: it holds the slot and the lease until then."""
    context.cancel_flag.set()
    while not running.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait({running})
    running.exception()


def _code(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return failures.TIMEOUT
    return error.code if isinstance(error, WindlassError) else type(error).__name__


def _trace(error: Exception) -> str:
    """The end of the traceback, where the news is."""
    text = "".join(traceback.format_exception(error))
    data = text.encode("utf-8", "replace")
    return data[-MAX_TRACEBACK:].decode("utf-8", "ignore")
