"""Main program of a child process that runs tasks, one at a time, for its worker.

It receives a job and runs it: a sync task in the main thread, an async task on its own event loop.
Then it sends the outcome. It stops on request of the worker: a sync task gets `StopRequested`, an
async task is cancelled, and the lifespan is left. A crash needs no handling here: the worker
detects the end of the process and has all earlier messages.
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace
from socket import socket
from types import ModuleType
from typing import Any

from windlass.core.codec import JsonCodec
from windlass.core.errors import ConfigurationError
from windlass.core.job.new_job import NewJob
from windlass.core.job.row import JobRow
from windlass.process.channel import Message
from windlass.process.import_path import ImportPath, resolve
from windlass.process.parent_connection import ParentConnection, StopRequested
from windlass.stores import public_url
from windlass.task_spec import TaskOptions, TaskSpec, encode_result, source_location
from windlass.worker.app_parts import AppParts
from windlass.worker.batch.batch import Batch, Item
from windlass.worker.batch.batch_spec import BatchSpec
from windlass.worker.child import job_json
from windlass.worker.child.context import ChildContext
from windlass.worker.child.outcome_json import encode_outcome
from windlass.worker.execution.error_info import ErrorInfo
from windlass.worker.lifespan import Lifespan


def main(end: socket) -> None:
    if sys.stderr is not None:
        faulthandler.enable()
    with (
        contextlib.suppress(StopRequested),
        ParentConnection(end) as parent,
        asyncio.Runner() as runner,
    ):
        _Child(parent, runner).serve()


class _Child:
    def __init__(self, parent: ParentConnection, runner: asyncio.Runner) -> None:
        self._parent = parent
        self._runner = runner
        self._lifespan = _LifespanHolder(runner)

    def serve(self) -> None:
        try:
            while True:
                self._parent.check_stop()
                result = self._run_attempt(self._parent.next())
                for stream in (sys.stdout, sys.stderr):  # output before the job's end
                    with contextlib.suppress(Exception):
                        stream.flush()
                self._parent.send(result)
        finally:
            self._lifespan.leave()

    def _run_attempt(self, work: Message) -> Message:
        job = job_json.from_json(JobRow, work["job"])
        try:
            spec, app = _load(work)
            context = ChildContext(
                job,
                self._parent,
                parts=AppParts() if app is None else AppParts(enqueue=_enqueue(app, work["url"])),
                state=self._state(spec, app, work["lifespan"]),
                spec=spec,
            )
        except BaseException as error:  # noqa: BLE001 - reported to the worker, which replaces this child
            self._parent.check_stop()
            info = ErrorInfo.from_error(error, TaskOptions())
            message = f"the task cannot start in a child process: {info.message}"
            info = replace(info, retryable=True, message=message)
            return {"type": "setup_failed", "error": info.to_json()}
        self._parent.on_stop = context.request_stop
        try:
            return self._run(spec, context, work["arguments"])
        except BaseException as error:  # noqa: BLE001 - any error of a task is its outcome
            self._parent.check_stop()
            ending = encode_outcome(error)
            if ending is None:
                ending = {"error": ErrorInfo.from_error(error, spec.options).to_json()}
            return {"type": "end", **ending}
        finally:
            self._parent.on_stop = lambda: None
            context.end()

    def _run(self, spec: TaskSpec, context: ChildContext, stored: Any) -> Message:
        if isinstance(spec, BatchSpec):
            item: Item[Any, Any] = Item(spec.make(stored), context)
            self._call(spec, lambda: spec.function(Batch([item])))
            value = item.outcome()
        else:
            leading = (context,) if spec.signature.takes_context else ()
            arguments = spec.signature.restore(stored)
            value = self._call(spec, lambda: spec.function(*leading, **arguments))
        result = spec.signature.result(value)
        encode_result(result, JsonCodec())  # raises here if it cannot be stored
        children = [job_json.to_json(new) for new in context.children]
        return {"type": "end", "result": result, "children": children}

    def _call(self, spec: TaskSpec, call: Callable[[], Any]) -> Any:
        return self._runner.run(self._stoppable(call)) if spec.is_async else call()

    async def _stoppable(self, call: Callable[[], Awaitable[Any]]) -> Any:
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()

        def cancel() -> None:
            loop.call_soon_threadsafe(task.cancel)

        with self._parent.stop_handler(cancel):
            return await call()

    def _state(self, spec: TaskSpec, app: Any, expected: bool) -> Any:
        if not spec.signature.takes_context or not expected:
            return None
        if app is None:
            raise ConfigurationError(
                f"task {spec.name!r} takes ctx and its app has a lifespan, but a child process "
                "cannot import the app: keep it in a module-level variable"
            )
        return self._lifespan.state(app.parts.lifespan)


class _LifespanHolder:
    """The app's lifespan, entered before the first task that can read its state.

    One asyncio task enters and leaves it: many context managers require the same task for both.
    """

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._holder: asyncio.Task[None] | None = None
        self._state: Any = None

    def state(self, lifespan: Lifespan | None) -> Any:
        if self._holder is None and lifespan is not None:
            self._runner.run(self._enter(lifespan))
        return self._state

    async def _enter(self, lifespan: Lifespan) -> None:
        entered = asyncio.Event()
        self._leave_event = asyncio.Event()

        async def hold() -> None:
            async with lifespan() as self._state:
                entered.set()
                await self._leave_event.wait()

        holder = asyncio.ensure_future(hold())
        waiting = asyncio.ensure_future(entered.wait())
        await asyncio.wait({holder, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if holder.done():
            try:
                holder.result()
            except Exception as error:
                raise ConfigurationError(
                    f"the lifespan at {source_location(lifespan)} failed to start in a child "
                    f"process: {type(error).__name__}: {error}"
                ) from error
        self._holder = holder

    def leave(self) -> None:
        if self._holder is not None:
            self._leave_event.set()
            self._runner.run(_await(self._holder))


async def _await(task: asyncio.Task[None]) -> None:
    await task


def _load(work: Message) -> tuple[TaskSpec, Any]:
    """Load the app first: importing its module may attach a group of tasks to it."""
    app = None if work["app"] is None else resolve(ImportPath(**work["app"]))[1]
    path = ImportPath(**work["task"])
    try:
        module, found = resolve(path)
    except AttributeError as error:
        raise ImportError(f"a child process cannot find {path}: {error}") from error
    return _spec_of(module, found, path), app


def _spec_of(module: ModuleType, found: Any, path: ImportPath) -> TaskSpec:
    """Find the task by its function's name or, if it has another name, in the same module."""
    for candidate in (found, *vars(module).values()):
        spec = getattr(candidate, "spec", None)
        if isinstance(spec, TaskSpec) and found in (candidate, spec.function):
            return spec
    raise ImportError(
        f"a child process found {path}, but it is {found!r:.80} and not a task; "
        "keep the task in a module-level variable"
    )


def _enqueue(app: Any, url: str | None) -> Callable[[list[NewJob]], Awaitable[list[Any]]]:
    """Enqueue by this process's app, if it uses the same store as the worker."""

    async def enqueue(jobs: list[NewJob]) -> list[Any]:
        if app.url != url or not app.client().store.capabilities.durable:
            child_url, worker_url = public_url(app.url), public_url(url or "none")
            raise ConfigurationError(
                f"ctx.enqueue in a child process would store jobs in {child_url}, not in the store "
                f"of its worker ({worker_url}); use ctx.then, or give the task another executor"
            )
        stored: list[Any] = await app.aenqueue_many(jobs)
        return stored

    return enqueue
