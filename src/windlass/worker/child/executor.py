"""Tasks in child processes, from the worker's side.

`run` gives a job to a warm child and serves it until its end: what the task says goes to the real
`Context`, and what it asks is answered from there. When `run` is cancelled (timeout, cancel, lost
lease, release), the child is stopped with all it started, and is gone before the cancellation goes
on. When the child dies, `run` raises `ProcessDiedError`. When the worker dies, so do the children.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import asdict
from typing import Any, NoReturn
from uuid import UUID

from windlass.core.errors import ConfigurationError
from windlass.core.job.row import NewJob
from windlass.process.channel import Message
from windlass.process.import_path import Address, address_of, holder, importable, loading_main
from windlass.process.pool import GRACE, Pool, through
from windlass.process.spawn import Process, ProcessDiedError
from windlass.task_spec import TaskSpec
from windlass.worker.child import messages
from windlass.worker.context import Context
from windlass.worker.error_info import Raised, RemoteError, UnfitError, ending_from, message_of
from windlass.worker.suspension import Suspend
from windlass.workspace import Kind

_LAST_WORDS = 1.0  # seconds for a child that closed its channel to end by itself


class Children:
    """`app` is what the tasks belong to. A child can reach it if a module holds it by a name."""

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
                "a worker is started by a line that a child process runs, too, when it reads the "
                'main script: put that line under `if __name__ == "__main__":`'
            )
        self._app = app
        self._held: Address | None = None
        self._lifespan = lifespan
        self.pool = Pool("windlass.worker.child.entry", limit=limit, grace=grace, idle=idle)

    async def run(self, spec: TaskSpec, context: Context, stored: dict[str, Any]) -> Any:
        """The task's result, as JSON. Raises Snooze, Cancel, RemoteError or ProcessDiedError."""
        reason = importable(spec.function)
        if reason is not None:
            raise ConfigurationError(f"task {spec.name!r} cannot run in a child process: {reason}")
        app = self._app_address()
        work: Message = {
            "job": messages.to_json(context.job),
            "task": asdict(address_of(spec.function)),
            "app": None if app is None else asdict(app),
            "url": getattr(self._app, "url", None),
            "lifespan": self._lifespan,
            "arguments": stored,
        }
        async with self.pool.take() as process:
            end = await _Service(process, context, self.pool.grace).run(work)
            if end["say"] == "unfit":
                raise UnfitError(Raised(**end["raised"]))  # in here: the child is not used again
        return _outcome(end, context)

    def _app_address(self) -> Address | None:
        if self._held is None and self._app is not None:
            self._held = holder(self._app)  # a look through all modules: 2 ms
        return self._held

    async def aclose(self) -> None:
        await self.pool.aclose()


def _outcome(end: Message, context: Context) -> Any:
    if "raised" in end:
        raise RemoteError(Raised(**end["raised"]))
    if "result" not in end:
        ending = ending_from(end)
        if isinstance(ending, Suspend):  # the middleware of the app is here
            ending.children = tuple(context.adopt(child) for child in ending.children)
        raise ending
    for told in end["children"]:
        context.then(_Made(messages.from_json(NewJob, told)))
    return end["result"]


class _Made:
    """A job that the child made, in the shape that `ctx.then` takes."""

    def __init__(self, new: NewJob) -> None:
        self._new = new

    def new_job(self) -> NewJob:
        return self._new

    async def aenqueue(self) -> NoReturn:
        raise AssertionError("only for `then`")


class _Service:
    """One job in one child."""

    def __init__(self, process: Process, context: Context, grace: float) -> None:
        self._process = process
        self._channel = process.channel
        self._context = context
        self._grace = grace
        self._answering: set[asyncio.Task[None]] = set()
        self._steps: defaultdict[str, deque[asyncio.Future[tuple[int, Any]]]] = defaultdict(deque)
        self._stage: str | None = None
        self._refused: Exception | None = None

    async def run(self, work: Message) -> Message:
        self._channel.send(work)
        listening = asyncio.ensure_future(self._listen())
        either: set[asyncio.Future[Any]] = {listening, self._process.ended}
        try:
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await through(self._finish(listening))
        end = None if listening.cancelled() else listening.result()
        if end is None:
            raise ProcessDiedError(self._process.pid, await self._process.ended)
        if self._refused is not None and "result" in end:
            raise self._refused
        return end

    async def _finish(self, listening: asyncio.Future[Message | None]) -> None:
        """Stop the child if it is still at it. What it says while it stops is heard, too."""
        if not listening.done():
            await self._process.stop(self._grace)
        elif listening.result() is None:
            await asyncio.wait({self._process.ended}, timeout=_LAST_WORDS)
            await self._process.stop(0)
        await asyncio.wait({listening}, timeout=_LAST_WORDS)
        left: set[asyncio.Future[Any]] = {listening, *self._answering}
        for task in left:  # a stray process may hold the channel open
            task.cancel()
        await asyncio.wait(left)

    async def _listen(self) -> Message | None:
        """Until the job's end, or that of the child: then None."""
        while True:
            try:
                message = await self._channel.receive()
            except EOFError:
                return None
            if message["say"] in {"end", "unfit"}:
                return message
            try:
                self._hear(message)
            except Exception as error:  # noqa: BLE001 - the task's fault, and told at its end
                self._refused = self._refused or error

    def _hear(self, message: Message) -> None:
        context = self._context
        match message:
            case {"say": "progress", "percent": percent, "text": text, "stage": stage}:
                if stage != self._stage:
                    self._stage = stage
                    context.stage(stage)
                context.progress(percent, text)
            case {"say": "event", "kind": kind, "data": data}:
                context.emit(kind, data)
            case {"say": "completed", "step": step}:
                context.note_step(step)
            case {"number": number}:
                self._answer_to(message, number)

    def _answer_to(self, message: Message, number: int) -> None:
        context = self._context
        match message:
            case {"say": "step", "name": name}:
                self._begin(self._step(name, number))
            case {"say": "keep", "name": name, "value": value}:
                self._steps[name].popleft().set_result((number, value))
            case {"say": "flush"}:
                self._begin(self._answer(context.flush(), lambda: number))
            case {"say": "settle", "result": result, "children": told}:
                self._begin(self._answer(self._settlement(result, told), lambda: number))
            case {"say": "see", "ids": ids}:
                self._begin(self._answer(self._see(ids), lambda: number))
            case {"say": "signal", "name": name}:
                self._begin(self._answer(context.signal_of(name), lambda: number))
            case {"say": "directory", "kind": kind}:
                self._begin(self._answer(self._directory(kind), lambda: number))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _answer(self, work: Awaitable[Any], number: Callable[[], int]) -> None:
        try:
            answer: Message = {"value": await work}
        except Exception as error:  # noqa: BLE001 - raised over there
            answer = {"error": {"kind": type(error).__name__, "message": message_of(error)}}
        self._channel.send({"answer": number(), **answer})

    async def _settlement(self, result: Any, told: list[Any]) -> tuple[str, str]:
        children = [self._context.adopt(messages.from_json(NewJob, child)) for child in told]
        return await self._context.settlement(result, children)

    async def _see(self, ids: list[str]) -> dict[str, Any]:
        return asdict(await self._context.see_all([UUID(job_id) for job_id in ids]))

    async def _directory(self, kind: str) -> str:
        return str(self._context.workspace if kind == Kind.TEMP else self._context.proxy)

    async def _step(self, name: str, number: int) -> None:
        """The real step. Its function runs over there, between two questions: step, and keep."""
        asked = number

        async def elsewhere() -> Any:
            nonlocal asked
            made: asyncio.Future[tuple[int, Any]] = asyncio.get_running_loop().create_future()
            self._steps[name].append(made)
            self._channel.send({"answer": number, "value": None})
            asked, value = await made
            return value

        async def step() -> Any:
            return {"value": await self._context.astep(name, elsewhere)}

        await self._answer(step(), lambda: asked)
