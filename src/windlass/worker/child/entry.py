"""A child process that runs tasks, one at a time, for the worker that started it.

It waits for the worker's next job, runs it (a sync task in the main thread, an async one on this
process's own event loop), and says how it ended. It stops when the worker says so: a sync task gets
`Stopped`, an async one is cancelled, the lifespan is left. A crash needs nothing here: the worker
sees the process end, and everything that was said before is with it.
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
from windlass.core.job.row import JobRow, NewJob
from windlass.process.channel import Message
from windlass.process.import_path import Address, find
from windlass.process.parent import Parent, Stopped
from windlass.stores import public_url
from windlass.task_spec import TaskOptions, TaskSpec, encode_result, where
from windlass.worker.batch.task import Batch, BatchSpec, Item
from windlass.worker.child import messages
from windlass.worker.child.context import ChildContext
from windlass.worker.error_info import Raised, ending_of
from windlass.worker.hooks import Kit, Lifespan


def main(end: socket) -> None:
    if sys.stderr is not None:
        faulthandler.enable()
    with contextlib.suppress(Stopped), Parent(end) as parent, asyncio.Runner() as runner:
        _Child(parent, runner).serve()


class _Child:
    def __init__(self, parent: Parent, runner: asyncio.Runner) -> None:
        self._parent = parent
        self._runner = runner
        self._life = _Life(runner)

    def serve(self) -> None:
        try:
            while True:
                self._parent.check_stop()
                told = self._attempt(self._parent.next())
                for stream in (sys.stdout, sys.stderr):  # its lines before the job's end is seen
                    with contextlib.suppress(Exception):
                        stream.flush()
                self._parent.say(told)
        finally:
            self._life.leave()

    def _attempt(self, work: Message) -> Message:
        job = messages.from_json(JobRow, work["job"])
        try:
            spec, app = _load(work)
            context = ChildContext(
                job,
                self._parent,
                kit=Kit() if app is None else Kit(enqueue=_enqueue(app, work["url"])),
                state=self._state(spec, app, work["lifespan"]),
                spec=spec,
            )
        except BaseException as error:  # noqa: BLE001 - the worker is told, and starts another child
            self._parent.check_stop()
            raised = Raised.of(error, TaskOptions())
            message = f"the task cannot start in a child process: {raised.message}"
            raised = replace(raised, retryable=True, message=message)
            return {"say": "unfit", "raised": raised.to_json()}
        self._parent.on_announced = context.ask_to_stop
        try:
            return self._run(spec, context, work["arguments"])
        except BaseException as error:  # noqa: BLE001 - whatever a task raises is its outcome
            self._parent.check_stop()
            told = ending_of(error) or {"raised": Raised.of(error, spec.options).to_json()}
            return {"say": "end", **told}
        finally:
            self._parent.on_announced = lambda: None
            context.end()

    def _run(self, spec: TaskSpec, context: ChildContext, stored: Any) -> Message:
        if isinstance(spec, BatchSpec):
            item: Item[Any, Any] = Item(spec.make(stored), context)
            self._call(spec, lambda: spec.function(Batch([item])))
            value = item.outcome()
        else:
            given = (context,) if spec.signature.takes_context else ()
            arguments = spec.signature.restore(stored)
            value = self._call(spec, lambda: spec.function(*given, **arguments))
        result = spec.signature.result(value)
        encode_result(result, JsonCodec())  # so that it is refused here, where it was made
        children = [messages.to_json(new) for new in context.children]
        return {"say": "end", "result": result, "children": children}

    def _call(self, spec: TaskSpec, call: Callable[[], Any]) -> Any:
        return self._runner.run(self._stoppable(call)) if spec.is_async else call()

    async def _stoppable(self, call: Callable[[], Awaitable[Any]]) -> Any:
        task = asyncio.current_task()
        assert task is not None
        loop = asyncio.get_running_loop()

        def cancel() -> None:
            loop.call_soon_threadsafe(task.cancel)

        with self._parent.obeyed_by(cancel):
            return await call()

    def _state(self, spec: TaskSpec, app: Any, expected: bool) -> Any:
        if not spec.signature.takes_context or not expected:
            return None
        if app is None:
            raise ConfigurationError(
                f"task {spec.name!r} takes ctx, and its app has a lifespan, which a child process "
                "cannot find: hold the app in a variable at the top of a module"
            )
        return self._life.state(app.kit.lifespan)


class _Life:
    """The app's lifespan, entered before the first task that could see its state.

    One asyncio task holds it open, because much that is entered must be left by the same task.
    """

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner
        self._holding: asyncio.Task[None] | None = None
        self._state: Any = None

    def state(self, lifespan: Lifespan | None) -> Any:
        if self._holding is None and lifespan is not None:
            self._runner.run(self._enter(lifespan))
        return self._state

    async def _enter(self, lifespan: Lifespan) -> None:
        entered = asyncio.Event()
        self._leaving = asyncio.Event()

        async def hold() -> None:
            async with lifespan() as self._state:
                entered.set()
                await self._leaving.wait()

        holding = asyncio.ensure_future(hold())
        waiting = asyncio.ensure_future(entered.wait())
        await asyncio.wait({holding, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if holding.done():
            try:
                holding.result()
            except Exception as error:
                raise ConfigurationError(
                    f"the lifespan at {where(lifespan)} failed to start in a child process: "
                    f"{type(error).__name__}: {error}"
                ) from error
        self._holding = holding

    def leave(self) -> None:
        if self._holding is not None:
            self._leaving.set()
            self._runner.run(_await(self._holding))


async def _await(task: asyncio.Task[None]) -> None:
    await task


def _load(work: Message) -> tuple[TaskSpec, Any]:
    """The app first: importing its module may be what gives a group of tasks its app."""
    app = None if work["app"] is None else find(Address(**work["app"]))[1]
    address = Address(**work["task"])
    try:
        module, found = find(address)
    except AttributeError as error:
        raise ImportError(f"a child process cannot find {address}: {error}") from error
    return _spec_of(module, found, address), app


def _spec_of(module: ModuleType, found: Any, address: Address) -> TaskSpec:
    """A task stands where its function did, or beside it when it was made under another name."""
    for candidate in (found, *vars(module).values()):
        spec = getattr(candidate, "spec", None)
        if isinstance(spec, TaskSpec) and found in (candidate, spec.function):
            return spec
    raise ImportError(
        f"a child process found {address}, but it is {found!r:.80} and no task; "
        "keep the task itself in a variable at the top of that module"
    )


def _enqueue(app: Any, url: str | None) -> Callable[[list[NewJob]], Awaitable[list[Any]]]:
    """By this process's own app, if that leads to where the worker's does."""

    async def enqueue(jobs: list[NewJob]) -> list[Any]:
        if app.url != url or not app.client().store.capabilities.durable:
            ours, theirs = public_url(app.url), public_url(url or "none")
            raise ConfigurationError(
                f"ctx.enqueue in a child process would store jobs in {ours}, which is not the "
                f"store of its worker ({theirs}); use ctx.then, or give the task another executor"
            )
        stored: list[Any] = await app.aenqueue_many(jobs)
        return stored

    return enqueue
