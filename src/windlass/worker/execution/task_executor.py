"""Calls the task of an attempt and returns the outcome. Never raises the task's own errors.

Async tasks run on the worker's loop, sync tasks on a thread, tasks with `executor="process"` in a
child process. A job that was running when a worker died also runs in a child process. A timeout
stops an async task, and a child process with all its descendants. A thread cannot be stopped: it
gets a request (`ctx.cancelled`) and keeps its slot until it returns. A child that dies is a crash
of its own job only. Middleware is part of the attempt: its time counts, and its errors are the
outcome.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import Any, TypeAlias

from windlass.core.codec import Codec, Purpose
from windlass.core.decisions.outcome import (
    Aborted,
    Crashed,
    Failed,
    Outcome,
    Snoozed,
    Succeeded,
    Suspended,
)
from windlass.core.errors import Cancel, Snooze, StoreError
from windlass.core.job.result_reference import RESULTS
from windlass.core.job.row import JobRow
from windlass.process import ProcessDiedError, import_problem
from windlass.store import Store
from windlass.task_spec import Registry, TaskSpec, encode_result
from windlass.worker.app_parts import AppParts
from windlass.worker.batch.batch_call import BatchCall
from windlass.worker.batch.batch_spec import BatchSpec
from windlass.worker.child.executor import ChildExecutor
from windlass.worker.context import STORE_RETRY_DELAY, Context
from windlass.worker.dependency_results import resolve_results
from windlass.worker.event_buffer import storable_text
from windlass.worker.execution.attempt_failure import (
    AttemptTimeoutError,
    encode_error,
    error_info_of,
    failure_from_error,
    failure_from_info,
)
from windlass.worker.execution.error_info import (
    MAX_ERROR_MESSAGE,
    ChildSetupError,
    ErrorInfo,
    RemoteError,
)
from windlass.worker.execution.thread_call import call_on_thread
from windlass.worker.execution.unknown_tasks import (
    UNKNOWN_TASK_DELAY,
    unknown_task_error,
    unknown_too_long,
)
from windlass.worker.suspension import find_suspension

log = logging.getLogger("windlass.worker")
_Execute: TypeAlias = Callable[[TaskSpec, Context, Any, asyncio.Timeout], Awaitable[Any]]


class TaskExecutor:
    def __init__(
        self,
        tasks: Registry,
        codec: Codec,
        threads: Executor,
        store: Store,
        *,
        parts: AppParts,
        children: ChildExecutor,
        isolate: bool = True,
    ) -> None:
        self._parts = parts
        self._children = children
        self._isolate = isolate
        self._tasks = tasks
        self._codec = codec
        self._threads = threads
        self._store = store

    async def run(
        self, job: JobRow, context: Context, batch_call: BatchCall | None = None
    ) -> Outcome:
        """Run a job and return its outcome; `batch_call` is set for a job of a batch."""
        spec = self._tasks.get(job.task)
        if spec is None:
            return await self._handle_unknown_task(job, context)
        try:
            stored = self._codec.decode(job.payload, Purpose.PAYLOAD)
            if type(stored) is dict and RESULTS in stored:
                stored = await self._resolve_results(job, stored)
            if (job.crash_count or spec.options.executor) and self._runs_in_child(spec, job):
                try:
                    value = await self._call(spec, job, context, stored, self._in_child)
                    return Succeeded(result=encode_result(value, self._codec))
                except ChildSetupError as error:
                    if spec.options.executor == "process":
                        raise
                    self._warn_not_isolated(job, str(error))
            if isinstance(spec, BatchSpec):
                execute = self._in_batch(batch_call or BatchCall(spec, [job.lease]))
                value = await self._call(spec, job, context, spec.make(stored), execute)
                return Succeeded(result=encode_result(spec.signature.result(value), self._codec))
            arguments = spec.signature.restore(stored)
            if (
                spec.is_async
                and job.policy.timeout is None
                and not self._parts.middleware.has_run_hooks
            ):
                leading = (context,) if spec.signature.takes_context else ()
                value = await spec.function(*leading, **arguments)  # fast path: nothing wraps it
            else:
                execute = self._on_loop if spec.is_async else self._on_thread
                value = await self._call(spec, job, context, arguments, execute)
            return Succeeded(result=encode_result(spec.signature.result(value), self._codec))
        except (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001 - any error of a task is its outcome
            return self._outcome_of(error, spec, context)

    async def _resolve_results(self, job: JobRow, stored: dict[str, Any]) -> dict[str, Any]:
        """Retry until the store is available: an outage does not fail the task."""
        while True:
            try:
                return await resolve_results(self._store, self._codec, job, stored)
            except StoreError as error:
                self._parts.step_outages.failed(error, f"Reading inputs of job {job.id}")
                await asyncio.sleep(STORE_RETRY_DELAY)

    def _runs_in_child(self, spec: TaskSpec, job: JobRow) -> bool:
        """Whether this job runs in a child process."""
        if spec.options.executor == "process":
            return True
        if not (job.isolated and self._isolate):
            return False
        reason = import_problem(spec.function)
        if reason is not None:
            self._warn_not_isolated(job, reason)
        return reason is None

    def _warn_not_isolated(self, job: JobRow, reason: str) -> None:
        log.warning(
            "job %s was running when a worker died, but cannot be isolated in a child process: %s",
            job.id, reason,
        )  # fmt: skip

    async def _call(
        self, spec: TaskSpec, job: JobRow, context: Context, arguments: Any, execute: _Execute
    ) -> Any:
        timeout = job.policy.timeout
        limit = asyncio.timeout(timeout)
        timed_out = AttemptTimeoutError(f"ran longer than its timeout of {timeout} s")

        async def task() -> Any:
            return await execute(spec, context, arguments, limit)

        try:
            async with limit:
                return await self._parts.middleware.run(context, task)
        except TimeoutError as error:
            if limit.expired() and error is not timed_out:
                raise timed_out from error
            raise

    async def _in_child(
        self,
        spec: TaskSpec,
        context: Context,
        stored: Any,
        limit: asyncio.Timeout,  # noqa: ARG002
    ) -> Any:
        return await self._children.run(spec, context, stored)

    def _in_batch(self, call: BatchCall) -> _Execute:
        return lambda _, context, args, limit: call.join(self._threads, context, args, limit)

    async def _on_loop(
        self,
        spec: TaskSpec,
        context: Context,
        arguments: Any,
        limit: asyncio.Timeout,  # noqa: ARG002
    ) -> Any:
        leading = (context,) if spec.signature.takes_context else ()
        return await spec.function(*leading, **arguments)

    async def _on_thread(
        self, spec: TaskSpec, context: Context, arguments: Any, limit: asyncio.Timeout
    ) -> Any:
        leading = (context,) if spec.signature.takes_context else ()
        running = asyncio.get_running_loop().run_in_executor(
            self._threads, call_on_thread, lambda: spec.function(*leading, **arguments)
        )
        try:
            await asyncio.wait({running})
        except asyncio.CancelledError:
            if limit.expired():
                timeout = context.job.policy.timeout
                context.warn(
                    f"still running after its timeout of {timeout} s; a thread must return"
                )
            await _stop_thread(running, context)
            raise  # the thread got a stop request, so its result may be incomplete
        return running.result()

    async def _handle_unknown_task(self, job: JobRow, context: Context) -> Outcome:
        """Snooze: a newer deploy may have the task. Fail after a day."""
        if await unknown_too_long(self._store, job):
            return Failed(
                failure=failure_from_error(unknown_task_error(job), self._codec, terminal=True)
            )
        problem = f"task {job.task!r} is not registered in this worker; retrying later"
        log.warning("job %s: %s", job.id, problem)
        context.warn(problem)
        return Snoozed(delay=UNKNOWN_TASK_DELAY)

    def _outcome_of(self, error: BaseException, spec: TaskSpec, context: Context) -> Outcome:
        job, step = context.job, context.current_step
        suspend = find_suspension(error)
        if suspend is not None:
            context.fan_out = suspend.children
            return Suspended(
                timeout=suspend.timeout, awaits=suspend.awaits, signals=suspend.signals
            )
        match error:
            case Snooze(delay=delay):
                return Snoozed(delay=delay)
            case Cancel(reason=reason):
                return Aborted(reason=storable_text(reason, MAX_ERROR_MESSAGE) or None)
            case ProcessDiedError():
                log.warning("job %s (%s), attempt %d: %s", job.id, job.task, job.attempt, error)
                return Crashed(
                    body=encode_error(ErrorInfo.from_error(error, spec.options), self._codec)
                )
        info = error.info if isinstance(error, RemoteError) else error_info_of(error, spec.options)
        failure = failure_from_info(info, self._codec, step)
        log.warning(
            "job %s (%s), attempt %d: %s", job.id, job.task, job.attempt, failure.code,
            exc_info=(type(error), error, error.__traceback__) if log.isEnabledFor(10) else None,
        )  # fmt: skip
        return Failed(failure=failure, delay=info.delay)


async def _stop_thread(running: asyncio.Future[Any], context: Context) -> None:
    """Request a stop and wait: the thread holds slot and lease until it returns."""
    context.request_stop()
    while not running.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait({running})
    running.exception()
