"""Windlass: what a user holds. From a URL to tasks, jobs and a worker."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import replace
from threading import Lock
from typing import Any, Concatenate, Generic, ParamSpec, TypeAlias, TypeVar, cast, overload
from uuid import UUID

from windlass.client import Client, EnqueueOptions, accepted
from windlass.config import Duration, seconds, store_url
from windlass.core.clock import Clock
from windlass.core.codec import Codec, JsonCodec, Purpose
from windlass.core.enqueue import Enqueued
from windlass.core.errors import (
    ConfigurationError,
    ConflictError,
    JobFailedError,
    StoreUnavailableError,
)
from windlass.core.event import Event
from windlass.core.job import DEFAULT_QUEUE, JobRow, NewJob
from windlass.core.retry import Backoff, Exponential, Policy
from windlass.core.state import State
from windlass.store import Store
from windlass.stores import open_store
from windlass.stores.transacting import Transacting, Transaction
from windlass.sync import LoopThread
from windlass.task import Registry, TaskOptions, TaskSpec
from windlass.worker import Context, Worker, WorkerConfig

P = ParamSpec("P")
R = TypeVar("R")
_Errors: TypeAlias = type[BaseException] | Iterable[type[BaseException]]


class Job(Generic[R]):
    """A job that was enqueued: look at it, wait for it, follow it. `R` is its task's result."""

    def __init__(self, app: Windlass, row: JobRow, *, duplicate: bool = False) -> None:
        self._app = app
        self.row = row
        self.duplicate = duplicate

    @property
    def id(self) -> UUID:
        return self.row.id

    @property
    def state(self) -> State:
        """As last seen; `refresh` looks again."""
        return self.row.state

    async def arefresh(self) -> Job[R]:
        self.row = await self._app.client().get(self.id)
        return self

    def refresh(self) -> Job[R]:
        return self._app.sync.call(self.arefresh())

    async def await_end(self, timeout: Duration | None = None) -> Job[R]:
        """Wait until it has ended; raises TimeoutError if that takes longer."""
        async with asyncio.timeout(None if timeout is None else seconds(timeout, "timeout")):
            self.row = await self._app.client().wait(self.id)
        return self

    def wait(self, timeout: Duration | None = None) -> Job[R]:
        return self._app.sync.call(self.await_end(timeout))

    async def aresult(self, timeout: Duration | None = None) -> R:
        """What the task returned, or JobFailedError with the remote traceback."""
        await self.await_end(timeout)
        return self._result()

    def result(self, timeout: Duration | None = None) -> R:
        self.wait(timeout)
        return self._result()

    def _result(self) -> R:
        row = self.row
        if row.state is not State.SUCCEEDED:
            raise self._app.explain(row)
        if row.result is None:
            return cast("R", None)
        value = self._app.codec.decode(row.result, Purpose.RESULT)
        spec = self._app.tasks.get(row.task)
        return cast("R", spec.signature.restore_result(value) if spec else value)

    async def acancel(self, reason: str | None = None) -> State:
        return await self._app.client().cancel(self.id, reason=reason)

    def cancel(self, reason: str | None = None) -> State:
        return self._app.sync.call(self.acancel(reason))

    async def asubmit(self) -> State:
        return await self._app.client().submit(self.id)

    def submit(self) -> State:
        return self._app.sync.call(self.asubmit())

    def aevents(self, after: int = 0) -> AsyncIterator[Event]:
        """Every event, then live ones until the last."""
        return self._app.client().events(self.id, after)


class Task(Generic[P, R]):
    """A function that can also be enqueued. Calling it stays a plain call."""

    def __init__(
        self,
        app: Windlass,
        spec: TaskSpec,
        options: EnqueueOptions | None = None,
    ) -> None:
        self._app = app
        self.spec = spec
        self._options = options or EnqueueOptions()

    @property
    def name(self) -> str:
        return self.spec.name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.spec.function(*args, **kwargs)

    def options(
        self,
        *,
        delay: Duration | None = None,
        expires_in: Duration | None = None,
        **more: Any,
    ) -> Task[P, R]:
        """The same task with these options for its next jobs."""
        _only_known(more, EnqueueOptions.__slots__)
        changes = dict(more)
        if delay is not None:
            changes["delay"] = seconds(delay, "delay")
        if expires_in is not None:
            changes["expires_in"] = seconds(expires_in, "expires_in")
        return Task(self._app, self.spec, replace(self._options, **changes))

    def new_job(self, *args: P.args, **kwargs: P.kwargs) -> NewJob:
        """The job as it would be enqueued: for bulk."""
        return self._app.prepare(self.spec, args, kwargs, self._options)

    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        [job] = await self._app.aenqueue_many([self.new_job(*args, **kwargs)])
        return cast("Job[R]", job)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Job[R]:
        [job] = self._app.enqueue_many([self.new_job(*args, **kwargs)])
        return cast("Job[R]", job)


class Windlass:
    """An application's jobs: the store behind a URL, and the tasks that run them."""

    def __init__(
        self, url: str | None = None, *, codec: Codec | None = None, clock: Clock | None = None
    ) -> None:
        self.url = store_url(url)
        self.codec: Codec = codec or JsonCodec()
        self.tasks = Registry()
        self.sync = LoopThread()
        self._root: Store = open_store(self.url, clock=clock)
        self._lock = Lock()
        self._pid = os.getpid()
        self._closed = False
        self._handles: dict[asyncio.AbstractEventLoop, Store] = {}
        self._transaction: ContextVar[Transaction | None] = ContextVar("transaction", default=None)

    # -- tasks

    @overload
    def task(self, function: Callable[Concatenate[Context, P], Awaitable[R]]) -> Task[P, R]: ...
    @overload
    def task(self, function: Callable[Concatenate[Context, P], R]) -> Task[P, R]: ...
    @overload
    def task(self, function: Callable[P, Awaitable[R]]) -> Task[P, R]: ...
    @overload
    def task(self, function: Callable[P, R]) -> Task[P, R]: ...
    @overload
    def task(self, **options: Any) -> _TaskMaker: ...
    def task(self, function: Callable[..., Any] | None = None, **options: Any) -> Any:
        """Make a task of a function: `@app.task`, or `@app.task(queue=…, max_retries=…)`."""
        if function is not None:
            return self._task(function, None, _options())
        name = options.pop("name", None)
        _only_known(options, inspect.signature(_options).parameters)
        made = _options(**options)
        return _TaskMaker(lambda function: self._task(function, name, made))

    def _task(
        self, function: Callable[..., Any], name: str | None, options: TaskOptions
    ) -> Task[Any, Any]:
        if not inspect.isroutine(function):
            raise ConfigurationError(f"{function!r} is not a function")
        spec = TaskSpec(name or f"{function.__module__}.{function.__qualname__}", function, options)
        self.tasks.add(spec)
        return Task(self, spec)

    # -- jobs

    def client(self) -> Client:
        """For the running event loop; handles of a store belong to one loop each."""
        loop = asyncio.get_running_loop()
        handles = self._own_handles()
        with self._lock:
            self._check_open()
            handle = handles.get(loop)
            if handle is None:
                for ended in [other for other in handles if other.is_closed()]:
                    self.sync.submit(handles.pop(ended).close())  # one asyncio.run after another
                handle = handles[loop] = self._root.twin()
        return Client(handle, self.codec)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailableError(f"the app on {self.url} is closed")

    def _own_handles(self) -> dict[asyncio.AbstractEventLoop, Store]:
        if self._pid != os.getpid():  # the loops of the process that forked run only there
            self._pid, self._lock, self._handles = os.getpid(), Lock(), {}
        return self._handles

    def prepare(self, spec: TaskSpec, args: Any, kwargs: Any, options: EnqueueOptions) -> NewJob:
        return Client(self._root, self.codec).prepare(spec, args, kwargs, options)

    async def aenqueue_many(self, jobs: list[NewJob]) -> list[Job[Any]]:
        """Enqueue jobs in one write. The first that is refused raises; the others are stored."""
        transaction = self._transaction.get()
        if transaction is not None:  # it holds the writer: a write beside it would wait for its end
            return self._jobs(transaction.enqueue(jobs))
        return self._jobs(await self.client().enqueue(jobs))

    def enqueue_many(self, jobs: list[NewJob]) -> list[Job[Any]]:
        transaction = self._transaction.get()
        if transaction is not None:
            return self._jobs(transaction.enqueue(jobs))
        return self.sync.call(self.aenqueue_many(jobs))

    def _jobs(self, answers: list[Enqueued]) -> list[Job[Any]]:
        rows = [(answer, accepted(answer)) for answer in answers]
        return [Job(self, row, duplicate=row.id != answer.new.id) for answer, row in rows]

    def explain(self, row: JobRow) -> JobFailedError:
        """Why a job did not succeed, for whoever waited for its result."""
        if row.state is State.CANCELED:
            return JobFailedError(
                f"job {row.id} was canceled: {row.cancel_reason or 'no reason given'}",
                state=row.state.value,
            )
        error = row.error
        said = self.codec.decode(error.body, Purpose.ERROR) if error and error.body else {}
        what = said.get("message") or (error.code if error else "unknown")
        return JobFailedError(
            f"job {row.id} ({row.task}) failed in attempt {row.attempt}: {what}",
            state=row.state.value,
            remote_traceback=said.get("traceback"),
        )

    @contextlib.contextmanager
    def transaction(self, timeout: Duration = 5) -> Iterator[Transaction]:
        """Your rows and your jobs in one SQLite transaction: both or none.

        `tx.execute(sql, parameters)` runs a statement; jobs enqueued inside the block join it.
        """
        if not isinstance(self._root, Transacting):
            raise ConfigurationError(
                f"{self.url} has no transactions of its own; only SQLite stores do"
            )
        self._check_open()
        if self._transaction.get() is not None:
            raise ConflictError("a transaction is open here already; use that one")
        transaction = self._root.transaction(seconds(timeout, "timeout"))
        token = self._transaction.set(transaction)
        try:
            yield transaction
        except BaseException:
            transaction.rollback()
            raise
        else:
            transaction.commit()
        finally:
            self._transaction.reset(token)

    # -- running

    def worker(self, config: WorkerConfig | None = None) -> Worker:
        self._check_open()
        return Worker(self._root.twin(), self.tasks, self.codec, config or WorkerConfig())

    async def aclose(self) -> None:
        await self._close_handles()
        await asyncio.to_thread(self.sync.close)

    def close(self) -> None:
        with contextlib.suppress(RuntimeError):
            if asyncio.get_running_loop() in self._own_handles():
                raise ConfigurationError("this event loop uses the app: write `await app.aclose()`")
        self.sync.call(self._close_handles())
        self.sync.close()

    async def _close_handles(self) -> None:
        """Each where it belongs: on its own loop, if that still runs."""
        self._closed = True
        here = asyncio.get_running_loop()
        handles = self._own_handles()
        while handles:
            loop, handle = handles.popitem()
            if loop is here or loop.is_closed():
                await handle.close()
            elif loop.is_running():
                closing = asyncio.run_coroutine_threadsafe(handle.close(), loop)
                await asyncio.wrap_future(closing)
            else:
                await asyncio.to_thread(loop.run_until_complete, handle.close())
        await self._root.close()


class _TaskMaker:
    """What `@app.task(…)` answers: still to be given its function."""

    def __init__(self, make: Callable[[Callable[..., Any]], Task[Any, Any]]) -> None:
        self._make = make

    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], Awaitable[R]]) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R]) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, Awaitable[R]]) -> Task[P, R]: ...
    @overload
    def __call__(self, function: Callable[P, R]) -> Task[P, R]: ...
    def __call__(self, function: Callable[..., Any]) -> Task[Any, Any]:
        return self._make(function)


def _options(
    *,
    queue: str = DEFAULT_QUEUE,
    priority: int = 0,
    max_retries: int = 3,
    backoff: Backoff | None = None,
    crash_cap: int = 3,
    timeout: Duration | None = None,
    lease: Duration | None = None,
    retry_on: _Errors = (),
    terminal_on: _Errors = (),
) -> TaskOptions:
    policy = Policy(
        backoff=backoff or Exponential(),
        max_retries=max_retries,
        crash_cap=crash_cap,
        timeout=None if timeout is None else seconds(timeout, "timeout"),
    )
    return TaskOptions(
        queue=queue,
        priority=priority,
        policy=policy,
        lease=None if lease is None else seconds(lease, "lease"),
        retry_on=_errors("retry_on", retry_on),
        terminal_on=_errors("terminal_on", terminal_on),
    )


def _errors(what: str, given: _Errors) -> tuple[type[BaseException], ...]:
    try:
        kinds = (given,) if isinstance(given, type) else tuple(given)
        isinstance(Exception(), kinds)
    except TypeError:
        raise ConfigurationError(f"{what} is {given!r}; it takes classes of exceptions") from None
    return kinds


def _only_known(given: Iterable[str], known: Iterable[str]) -> None:
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise ConfigurationError(
            f"unknown options: {', '.join(unknown)}; known are {', '.join(known)}"
        )
