"""Run one claimed job and say how its attempt ended. Raises nothing of the task's own.

Async tasks run on the worker's loop, sync ones on a thread, those of the executor "process" in a
child; so does a job that was running when a worker died, whatever its executor is. A timeout ends
an async task, and a child with all it started; a thread cannot be stopped, so it is asked
(`ctx.cancelled`) and keeps its slot until it returns. A child that dies is a crash of its own job
and no other. Middleware is part of the attempt: its time counts, what it raises is the outcome.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any, ClassVar, TypeAlias

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
from windlass.core.job import failure as failures
from windlass.core.job.failure import ErrorKind, Failure
from windlass.core.job.result_reference import RESULTS
from windlass.core.job.row import JobRow
from windlass.core.sizes import MAX_EVENT
from windlass.process import ProcessDiedError, importable
from windlass.store import Store
from windlass.task_spec import Registry, TaskOptions, TaskSpec, encode_result
from windlass.worker.batch.collector import Call, whole
from windlass.worker.batch.task import BatchSpec
from windlass.worker.child.executor import Children
from windlass.worker.context import RETRY_STORE, Context
from windlass.worker.error_info import MAX_MESSAGE, Raised, RemoteError, UnfitError
from windlass.worker.event_buffer import storable
from windlass.worker.hooks import Kit
from windlass.worker.suspension import suspension_in, with_results
from windlass.worker.unknown_tasks import (
    UNKNOWN_TASK_DELAY,
    UnknownTaskError,
    out_of_patience,
    unknown_task,
)

log = logging.getLogger("windlass.worker")
_Here: TypeAlias = Callable[[TaskSpec, Context, Any, asyncio.Timeout], Awaitable[Any]]


class AttemptTimeoutError(TimeoutError):
    """The attempt's own time ran out; a TimeoutError of the task's making is just an error."""

    code: ClassVar[str] = failures.TIMEOUT


class TaskRunner:
    def __init__(
        self,
        tasks: Registry,
        codec: Codec,
        threads: Executor,
        store: Store,
        *,
        kit: Kit,
        children: Children,
        isolate: bool = True,
    ) -> None:
        self._kit = kit
        self._children = children
        self._isolate = isolate
        self._tasks = tasks
        self._codec = codec
        self._threads = threads
        self._store = store

    async def run(self, job: JobRow, context: Context, call: Call | None = None) -> Outcome:
        """`call` is what it shares with other jobs, if its task is a batch task."""
        spec = self._tasks.get(job.task)
        if spec is None:
            return await self._unknown(job, context)
        try:
            stored = self._codec.decode(job.payload, Purpose.PAYLOAD)
            if type(stored) is dict and RESULTS in stored:
                stored = await self._with_results(job, stored)
            if (job.crash_count or spec.options.executor) and self._apart(spec, job):
                try:
                    value = await self._call(spec, job, context, stored, self._in_child)
                    return self._success(value)
                except UnfitError as error:
                    if spec.options.executor == "process":
                        raise
                    self._warn_not_apart(job, str(error))
            if isinstance(spec, BatchSpec):
                joined = call or Call(spec, [job.lease])
                value = await self._call(spec, job, context, spec.make(stored), self._in(joined))
                return self._success(spec.signature.result(value))
            arguments = spec.signature.restore(stored)
            if (
                spec.is_async
                and job.policy.timeout is None
                and not self._kit.middleware.around_runs
            ):
                given = (context,) if spec.signature.takes_context else ()
                value = await spec.function(*given, **arguments)  # nothing around it
            else:
                here = self._on_loop if spec.is_async else self._on_thread
                value = await self._call(spec, job, context, arguments, here)
            return self._success(spec.signature.result(value))
        except (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException as error:  # noqa: BLE001 - whatever a task raises is its outcome
            return self._failed(error, spec, context)

    async def _with_results(self, job: JobRow, stored: dict[str, Any]) -> dict[str, Any]:
        """A store that is away for a while is no failure of the task."""
        while True:
            try:
                return await with_results(self._store, self._codec, job, stored)
            except StoreError as error:
                self._kit.trouble.met(error, f"the results that job {job.id} needs")
                await asyncio.sleep(RETRY_STORE)

    def _success(self, value: Any) -> Succeeded:
        return Succeeded(result=encode_result(value, self._codec))

    def _apart(self, spec: TaskSpec, job: JobRow) -> bool:
        """Whether it runs in a child process."""
        if spec.options.executor == "process":
            return True
        if not (job.isolated and self._isolate):
            return False
        reason = importable(spec.function)
        if reason is not None:
            self._warn_not_apart(job, reason)
        return reason is None

    def _warn_not_apart(self, job: JobRow, reason: str) -> None:
        log.warning(
            "job %s was running when a worker died, and runs here again: its task cannot run in a "
            "process of its own: %s", job.id, reason,
        )  # fmt: skip

    async def _call(
        self, spec: TaskSpec, job: JobRow, context: Context, arguments: Any, here: _Here
    ) -> Any:
        timeout = job.policy.timeout
        limit = asyncio.timeout(timeout)
        over = AttemptTimeoutError(f"ran longer than its timeout of {timeout} s")

        async def task() -> Any:
            return await here(spec, context, arguments, limit)

        try:
            async with limit:
                return await self._kit.middleware.run(context, task)
        except TimeoutError as error:
            if limit.expired() and error is not over:
                raise over from error
            raise

    async def _in_child(
        self,
        spec: TaskSpec,
        context: Context,
        stored: Any,
        limit: asyncio.Timeout,  # noqa: ARG002
    ) -> Any:
        return await self._children.run(spec, context, stored)

    def _in(self, call: Call) -> _Here:
        return lambda _, context, args, limit: call.join(self._threads, context, args, limit)

    async def _on_loop(
        self,
        spec: TaskSpec,
        context: Context,
        arguments: Any,
        limit: asyncio.Timeout,  # noqa: ARG002
    ) -> Any:
        given = (context,) if spec.signature.takes_context else ()
        return await spec.function(*given, **arguments)

    async def _on_thread(
        self, spec: TaskSpec, context: Context, arguments: Any, limit: asyncio.Timeout
    ) -> Any:
        given = (context,) if spec.signature.takes_context else ()
        running = asyncio.get_running_loop().run_in_executor(
            self._threads, whole, lambda: spec.function(*given, **arguments)
        )
        try:
            await asyncio.wait({running})
        except asyncio.CancelledError:
            if limit.expired():
                timeout = context.job.policy.timeout
                context.warn(
                    f"still running after its timeout of {timeout} s; a thread must return"
                )
            await _returned(running, context)
            raise  # it was asked to stop: what it returned may be half of the work
        return running.result()

    async def _unknown(self, job: JobRow, context: Context) -> Outcome:
        """A newer deploy may know it: wait a day before giving up."""
        if await out_of_patience(self._store, job):
            return Failed(failure=describe(unknown_task(job), self._codec, terminal=True))
        problem = f"this worker does not know the task {job.task!r}; looking again later"
        log.warning("job %s: %s", job.id, problem)
        context.warn(problem)
        return Snoozed(delay=UNKNOWN_TASK_DELAY)

    def _failed(self, error: BaseException, spec: TaskSpec, context: Context) -> Outcome:
        job, step = context.job, context.current_step
        waits = suspension_in(error)
        if waits is not None:
            context.fan_out = waits.children
            return Suspended(timeout=waits.timeout, awaits=waits.awaits, signals=waits.signals)
        match error:
            case Snooze(delay=delay):
                return Snoozed(delay=delay)
            case Cancel(reason=reason):
                return Aborted(reason=storable(reason, MAX_MESSAGE) or None)
            case ProcessDiedError():
                log.warning("job %s (%s), attempt %d: %s", job.id, job.task, job.attempt, error)
                return Crashed(body=_body(Raised.of(error, spec.options), self._codec))
        raised = error.raised if isinstance(error, RemoteError) else raised_by(error, spec.options)
        failure = failure_of(raised, self._codec, step)
        log.warning(
            "job %s (%s), attempt %d: %s", job.id, job.task, job.attempt, failure.code,
            exc_info=(type(error), error, error.__traceback__) if log.isEnabledFor(10) else None,
        )  # fmt: skip
        return Failed(failure=failure, delay=raised.delay)


def raised_by(error: BaseException, options: TaskOptions | None = None) -> Raised:
    raised = Raised.of(error, options or TaskOptions())
    ours = AttemptTimeoutError | UnknownTaskError
    return replace(raised, code=error.code) if isinstance(error, ours) else raised


def describe(
    error: BaseException, codec: Codec, *, terminal: bool = False, step: str | None = None
) -> Failure:
    """An error as it is stored. Never raises, and always fits: else the job could not be ended."""
    raised = raised_by(error)
    return failure_of(replace(raised, retryable=raised.retryable and not terminal), codec, step)


def failure_of(raised: Raised, codec: Codec, step: str | None) -> Failure:
    kind = ErrorKind.RETRYABLE if raised.retryable else ErrorKind.TERMINAL
    return Failure(code=raised.code, kind=kind, step=step, body=_body(raised, codec))


def _body(raised: Raised, codec: Codec) -> bytes | None:
    said = {"type": raised.type, "message": raised.message, "traceback": raised.traceback}
    try:
        body = codec.encode(said, Purpose.ERROR)
        if len(body) > MAX_EVENT:  # a text full of what must be escaped
            body = codec.encode(said | {"traceback": None}, Purpose.ERROR)
    except Exception:
        log.exception("the codec could not write an error (%s); its code alone is stored", said)
        return None
    return body


async def _returned(running: asyncio.Future[Any], context: Context) -> None:
    """Ask a thread to end, and wait until it did: it holds the slot and the lease until then."""
    context.ask_to_stop()
    while not running.done():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.wait({running})
    running.exception()
