"""Runs tasks in child processes, from the worker's side.

`run` sends a job to a warm child and serves it until its end: events go to the real `Context`, and
requests are answered from it. When `run` is cancelled (timeout, cancel, lost lease, release), the
child is stopped with all its descendants before the cancellation propagates. When the child dies,
`run` raises `ProcessDiedError`. When the worker dies, so do its children.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import asdict
from typing import Any, NoReturn
from uuid import UUID

from windlass.core.errors import ConfigurationError
from windlass.core.job.new_job import NewJob
from windlass.process.cancellation import run_uncancelled
from windlass.process.channel import Message
from windlass.process.child_process import ChildProcess, ProcessDiedError
from windlass.process.import_path import (
    ImportPath,
    find_holder,
    import_path_of,
    import_problem,
    loading_main,
)
from windlass.process.pool import GRACE, ChildPool
from windlass.task_spec import TaskSpec
from windlass.worker.child import job_json
from windlass.worker.child.outcome_json import decode_outcome
from windlass.worker.context import Context
from windlass.worker.execution.error_info import (
    ChildSetupError,
    ErrorInfo,
    RemoteError,
    error_message,
)
from windlass.worker.suspension import Suspend
from windlass.workspace import WorkspaceKind

_EXIT_TIMEOUT = 1.0  # seconds for a child that closed its channel to end


class ChildExecutor:
    """`app` owns the tasks. A child can import it if it is a module-level variable."""

    def __init__(
        self,
        *,
        limit: int,
        app: Any = None,
        lifespan: bool = False,
        grace: float = GRACE,
        idle: float = 60.0,
    ) -> None:
        if loading_main():
            raise ConfigurationError(
                "this worker starts in a child process that imports the main script; "
                'start it under `if __name__ == "__main__":`'
            )
        self._app = app
        self._app_path: ImportPath | None = None
        self._lifespan = lifespan
        self.pool = ChildPool("windlass.worker.child.main", limit=limit, grace=grace, idle=idle)

    async def run(self, spec: TaskSpec, context: Context, stored: dict[str, Any]) -> Any:
        """Return the task's result. Raise Snooze, Cancel, RemoteError or ProcessDiedError."""
        reason = import_problem(spec.function)
        if reason is not None:
            raise ConfigurationError(f"task {spec.name!r} cannot run in a child process: {reason}")
        app = self._app_import_path()
        work: Message = {
            "job": job_json.to_json(context.job),
            "task": asdict(import_path_of(spec.function)),
            "app": None if app is None else asdict(app),
            "url": getattr(self._app, "url", None),
            "lifespan": self._lifespan,
            "arguments": stored,
        }
        async with self.pool.take() as process:
            end = await _ChildRun(process, context, self.pool.grace).run(work)
            if end["type"] == "setup_failed":  # raised inside the block: the pool drops the child
                raise ChildSetupError(ErrorInfo(**end["error"]))
        return _outcome(end, context)

    def _app_import_path(self) -> ImportPath | None:
        if self._app_path is None and self._app is not None:
            self._app_path = find_holder(self._app)  # searches all modules: 2 ms
        return self._app_path

    async def aclose(self) -> None:
        await self.pool.aclose()


def _outcome(end: Message, context: Context) -> Any:
    if "error" in end:
        raise RemoteError(ErrorInfo(**end["error"]))
    if "result" not in end:
        ending = decode_outcome(end)
        if isinstance(ending, Suspend):  # only the worker has the app's middleware
            ending.children = tuple(context.prepare_child(child) for child in ending.children)
        raise ending
    for child in end["children"]:
        context.then(_PreparedJob(job_json.from_json(NewJob, child)))
    return end["result"]


class _PreparedJob:
    """A job that the child created, as an argument for `ctx.then`."""

    def __init__(self, new: NewJob) -> None:
        self._new = new

    def new_job(self) -> NewJob:
        return self._new

    async def aenqueue(self) -> NoReturn:
        raise AssertionError("only for `then`")


class _ChildRun:
    """One job in one child process; serves its requests."""

    def __init__(self, process: ChildProcess, context: Context, grace: float) -> None:
        self._process = process
        self._channel = process.channel
        self._context = context
        self._grace = grace
        self._requests: set[asyncio.Task[None]] = set()
        self._open_steps: defaultdict[str, deque[asyncio.Future[tuple[int, Any]]]] = defaultdict(
            deque
        )
        self._stage: str | None = None
        self._error: Exception | None = None

    async def run(self, work: Message) -> Message:
        self._channel.send(work)
        receiver = asyncio.ensure_future(self._receive())
        waiting: set[asyncio.Future[Any]] = {receiver, self._process.ended}
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await run_uncancelled(self._finish(receiver))
        end = None if receiver.cancelled() else receiver.result()
        if end is None:
            raise ProcessDiedError(self._process.pid, await self._process.ended)
        if self._error is not None and "result" in end:
            raise self._error
        return end

    async def _finish(self, receiver: asyncio.Future[Message | None]) -> None:
        """Stop the child if it still runs; messages that it sends meanwhile are handled."""
        if not receiver.done():
            await self._process.stop(self._grace)
        elif receiver.result() is None:
            await asyncio.wait({self._process.ended}, timeout=_EXIT_TIMEOUT)
            await self._process.stop(0)
        await asyncio.wait({receiver}, timeout=_EXIT_TIMEOUT)
        tasks: set[asyncio.Future[Any]] = {receiver, *self._requests}
        for task in tasks:  # a stray process may hold the channel open
            task.cancel()
        await asyncio.wait(tasks)

    async def _receive(self) -> Message | None:
        """Handle messages until the job ends; return its end, or None if the child ended."""
        while True:
            try:
                message = await self._channel.receive()
            except EOFError:
                return None
            if message["type"] in {"end", "setup_failed"}:
                return message
            try:
                self._handle(message)
            except Exception as error:  # noqa: BLE001 - an error of the task, raised at its end
                self._error = self._error or error

    def _handle(self, message: Message) -> None:
        context = self._context
        match message:
            case {"type": "progress", "percent": percent, "text": text, "stage": stage}:
                if stage != self._stage:
                    self._stage = stage
                    context.stage(stage)
                context.progress(percent, text)
            case {"type": "event", "kind": kind, "data": data}:
                context.emit(kind, data)
            case {"type": "step_completed", "step": step}:
                context.record_step(step)
            case {"request": number}:
                self._handle_request(message, number)

    def _handle_request(self, message: Message, number: int) -> None:
        context = self._context
        match message:
            case {"type": "load_checkpoint", "name": name}:
                self._spawn(self._step(name, number))
            case {"type": "save_checkpoint", "name": name, "value": value}:
                self._open_steps[name].popleft().set_result((number, value))
            case {"type": "flush"}:
                self._spawn(self._respond(context.flush(), lambda: number))
            case {"type": "settlement", "result": result, "children": children}:
                self._spawn(self._respond(self._settlement(result, children), lambda: number))
            case {"type": "child_results", "ids": ids}:
                self._spawn(self._respond(self._child_results(ids), lambda: number))
            case {"type": "find_signal", "name": name}:
                self._spawn(self._respond(context.find_signal(name), lambda: number))
            case {"type": "directory", "kind": kind}:
                self._spawn(self._respond(self._directory(kind), lambda: number))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)

    async def _respond(self, work: Awaitable[Any], number: Callable[[], int]) -> None:
        try:
            response: Message = {"value": await work}
        except Exception as error:  # noqa: BLE001 - raised in the child
            response = {"error": {"kind": type(error).__name__, "message": error_message(error)}}
        self._channel.send({"response": number(), **response})

    async def _settlement(self, result: Any, children: list[Any]) -> tuple[str, str]:
        new_jobs = [
            self._context.prepare_child(job_json.from_json(NewJob, child)) for child in children
        ]
        return await self._context.settlement(result, new_jobs)

    async def _child_results(self, ids: list[str]) -> dict[str, Any]:
        return asdict(await self._context.child_results([UUID(job_id) for job_id in ids]))

    async def _directory(self, kind: str) -> str:
        return str(self._context.workspace if kind == WorkspaceKind.TEMP else self._context.proxy)

    async def _step(self, name: str, number: int) -> None:
        """Run the real step. Its function runs in the child, between load and save requests."""
        request = number

        async def run_in_child() -> Any:
            nonlocal request
            saved: asyncio.Future[tuple[int, Any]] = asyncio.get_running_loop().create_future()
            self._open_steps[name].append(saved)
            self._channel.send({"response": number, "value": None})
            request, value = await saved
            return value

        async def step() -> Any:
            return {"value": await self._context.astep(name, run_in_child)}

        await self._respond(step(), lambda: request)
