"""Windlass: what a user holds. From a URL to tasks, jobs and a worker."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar
from uuid import UUID

from windlass.client import Client, EnqueueOptions, check_accepted
from windlass.config import data_directory, store_url
from windlass.core.admission.gates import Limit
from windlass.core.clock import Clock
from windlass.core.codec import Codec, JsonCodec
from windlass.core.decisions.enqueue import Enqueued
from windlass.core.duration import Duration, seconds
from windlass.core.errors import (
    ConfigurationError,
    ConflictError,
    InvalidArgumentError,
    StoreUnavailableError,
)
from windlass.core.job.progress import DEFAULT_STAGES
from windlass.core.job.row import NewJob
from windlass.core.job.state import State
from windlass.core.schedule import Schedule
from windlass.flow import Flow, FlowRun
from windlass.job import Job
from windlass.limits import Declared, Limits
from windlass.options import Stages, stage_map
from windlass.schedules import Schedules
from windlass.server import Serving
from windlass.store import Store
from windlass.stores import open_store, public_url
from windlass.stores.transactions import Joined, Joining, Transacting, Transaction
from windlass.sync import LoopThread
from windlass.task import TaskHome, Tasks
from windlass.task_spec import TaskSpec, where
from windlass.worker import Kit, Worker, WorkerConfig
from windlass.worker.hooks import Lifespan, as_lifespan
from windlass.worker.middleware import Middleware
from windlass.workspace import Workspaces

T = TypeVar("T")


class Windlass(TaskHome, Serving):
    """An application's jobs: the store behind a URL, and the tasks that run them.

    `key` opens a server, `https://host`. `data` is the directory for workspaces on this host;
    `stages` maps stages to percentages; `limits` are for queues: `{"queue:render":
    Limit(concurrency=2)}`.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        key: str | None = None,
        codec: Codec | None = None,
        clock: Clock | None = None,
        data: Path | str | None = None,
        stages: Stages = DEFAULT_STAGES,
        limits: Mapping[str, Limit] | None = None,
    ) -> None:
        super().__init__()
        self._limited = Declared(limits or {})
        self.url = store_url(url)
        self.key = key
        self.codec: Codec = codec or JsonCodec()
        self.sync = LoopThread()
        self._stages = stage_map(stages)
        self._workspaces = Workspaces(data_directory(data))
        self._lifespan: Lifespan | None = None
        self._middleware = Middleware()
        self._groups: list[Tasks] = []
        self._root: Store = open_store(self.url, clock=clock, key=key)
        self._lock = Lock()
        self._pid = os.getpid()
        self._closed = False
        self._workers = 0
        self._handles: dict[asyncio.AbstractEventLoop, Store] = {}
        self._joined: ContextVar[Joined | None] = ContextVar("joined", default=None)
        self.schedules = Schedules(self)
        self.limits = Limits(self)

    # -- tasks, and what is around them

    def app_of(self, spec: TaskSpec) -> Windlass:  # noqa: ARG002 - all of them are ours
        return self

    def add(self, specs: Iterable[TaskSpec]) -> None:
        specs = list(specs)
        limits = [limit for spec in specs for limit in spec.limits.items()]
        self._limited.check(limits)
        super().add(specs)
        self._limited.add(limits)

    def include(self, tasks: Tasks) -> None:
        """Take in a group of tasks, with those it will get later."""
        self._check_open()
        tasks.join(self)
        self._groups.append(tasks)

    def lifespan(self, function: Callable[[], T]) -> Callable[[], T]:
        """Run it around each worker's life: what it yields is `ctx.state`."""
        if self._lifespan is not None:
            raise ConfigurationError(
                f"the app has a lifespan at {where(self._lifespan)}, and another at "
                f"{where(function)}; make one of the two"
            )
        self._lifespan = as_lifespan(function)
        return function

    def middleware(self, given: T) -> T:
        """Put it around every enqueue (`enqueue(new_job)`), every run (`run(ctx, call_next)`)."""
        self._middleware.add(given)
        return given

    @property
    def kit(self) -> Kit:
        """What workers of this app need beside its tasks."""
        return Kit(
            app=self,
            stages=self._stages,
            lifespan=self._lifespan,
            middleware=self._middleware,
            workspaces=self._workspaces,
            enqueue=self.aenqueue_many,
            declared=self._declared,
            declare=self._limited.tell,
            on_loop=self._hosting,
        )

    def _declared(self) -> list[Schedule]:
        client = Client(self._root, self.codec)
        return [one.schedule(client) for one in self.declared]

    @contextlib.contextmanager
    def _hosting(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """A worker lives on this loop: nothing may block it, and the store stays as it is."""
        with self._lock:
            self._workers += 1
        try:
            with self.sync.refusing(loop):
                yield
        finally:
            with self._lock:
                self._workers -= 1

    # -- jobs

    def client(self) -> Client:
        """For the running event loop; handles of a store belong to one loop each."""
        loop = asyncio.get_running_loop()
        self._own_handles()
        with self._lock:
            self._check_open()
            handles = self._handles
            handle = handles.get(loop)
            if handle is None:
                for ended in [other for other in handles if other.is_closed()]:
                    self.sync.submit(handles.pop(ended).close())  # one asyncio.run after another
                handle = handles[loop] = self._root.twin()
        return Client(handle, self.codec)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailableError(f"the app on {public_url(self.url)} is closed")

    def _own_handles(self) -> dict[asyncio.AbstractEventLoop, Store]:
        if self._pid != os.getpid():  # the loops of the process that forked run only there
            self._pid, self._lock, self._handles = os.getpid(), Lock(), {}
        return self._handles

    def prepare(self, spec: TaskSpec, args: Any, kwargs: Any, options: EnqueueOptions) -> NewJob:
        return Client(self._root, self.codec).prepare(spec, args, kwargs, options)

    async def aenqueue_many(self, jobs: list[NewJob], *, together: bool = False) -> list[Job[Any]]:
        """Enqueue jobs in one write. The first that is refused raises; the others are stored.

        With `together`, none is stored then: what a flow is made of.
        """
        return self._jobs(await self.aenqueue_each(jobs, together=together))

    async def aenqueue_each(self, jobs: list[NewJob], *, together: bool = False) -> list[Enqueued]:
        """The same, with an answer for each of them, in order."""
        jobs = self._middleware.enqueue_all(jobs)
        joined = self._joined.get()
        if joined is not None:  # a write beside it might have to wait for its end
            return await joined.aenqueue(jobs, together=together)
        if self._limited.owing:
            await self._limited.tell(self.client().store)
        return await self.client().enqueue(jobs, together=together)

    def enqueue_many(self, jobs: list[NewJob], *, together: bool = False) -> list[Job[Any]]:
        joined = self._joined.get()
        if joined is not None:
            jobs = self._middleware.enqueue_all(jobs)
            return self._jobs(joined.enqueue(jobs, together=together))
        return self.sync.call(self.aenqueue_many(jobs, together=together))

    def flow(self) -> Flow:
        """A graph of jobs to be filled, and enqueued in one write."""
        return Flow(self)

    async def aflow_run(self, flow_id: UUID | str) -> FlowRun:
        """A flow that was enqueued, by its id."""
        run = FlowRun(self, _uuid(flow_id, "flow"))
        await run.arefresh()
        return run

    def flow_run(self, flow_id: UUID | str) -> FlowRun:
        return self.sync.call(self.aflow_run(flow_id))

    async def asignal(self, job: Job[Any] | UUID | str, name: str, value: Any = None) -> State:
        """Give a job what it waits for, or will wait for: `ctx.wait_for(name)` answers it."""
        job_id = job.id if isinstance(job, Job) else _uuid(job, "job")
        return await self.client().signal(job_id, name, value)

    def signal(self, job: Job[Any] | UUID | str, name: str, value: Any = None) -> State:
        return self.sync.call(self.asignal(job, name, value))

    def _jobs(self, answers: list[Enqueued]) -> list[Job[Any]]:
        for answer in answers:
            check_accepted(answer)
        return [Job(self, answer) for answer in answers]

    async def ajob(self, job_id: UUID | str) -> Job[Any]:
        """The job with this id, whoever enqueued it."""
        return Job(self, await self.client().get(_uuid(job_id, "job")))

    def job(self, job_id: UUID | str) -> Job[Any]:
        return self.sync.call(self.ajob(job_id))

    @contextlib.contextmanager
    def transaction(self, timeout: Duration = 5) -> Iterator[Transaction]:
        """Your rows and your jobs in one SQLite transaction: both or none.

        `tx.execute(sql, parameters)` runs a statement; jobs enqueued inside the block join it.
        """
        if not isinstance(self._root, Transacting):
            raise ConfigurationError(
                f"{public_url(self.url)} has no transactions of its own, only SQLite stores do; "
                "for PostgreSQL, write `with app.within(connection):`"
            )
        self._check_open()
        if self._joined.get() is not None:
            raise ConflictError("a transaction is open here already; use that one")
        self._tell_limits()
        transaction = self._root.transaction(seconds(timeout, "timeout"))
        with self._joining(transaction):
            try:
                yield transaction
            except BaseException:
                transaction.rollback()
                raise
            else:
                transaction.commit()

    @contextlib.contextmanager
    def within(self, connection: Any) -> Iterator[None]:
        """Jobs enqueued inside the block become real with your PostgreSQL transaction, or never.

        `connection` is yours, on the database of the app: of asyncpg, psycopg 3, SQLAlchemy 2 (a
        session, too) or Django. Begin and commit it as always; the block does neither.
        """
        if not isinstance(self._root, Joining):
            raise ConfigurationError(
                f"jobs of {public_url(self.url)} cannot join a transaction of yours, only those of "
                "a PostgreSQL store can; for SQLite, write `with app.transaction() as tx:`"
            )
        self._check_open()
        self._tell_limits()
        guest = self._root.within(connection)
        with self._joining(guest):
            try:
                yield
            finally:
                guest.end()

    def _tell_limits(self) -> None:
        """Before a transaction begins, whose end the store might wait for; also on an event loop.

        So it runs on a thread of its own, and a loop of its own.
        """
        if not self._limited.owing:
            return

        async def tell() -> None:
            async with self._root.twin() as store:
                await self._limited.tell(store)

        with ThreadPoolExecutor(1, "windlass-limits") as thread:
            thread.submit(asyncio.run, tell()).result()

    @contextlib.contextmanager
    def _joining(self, joined: Joined) -> Iterator[None]:
        token = self._joined.set(joined)
        try:
            yield
        finally:
            self._joined.reset(token)

    # -- running

    @property
    def hosted(self) -> int:
        """How many workers of this app run in this process."""
        return self._workers

    def worker(self, config: WorkerConfig | None = None) -> Worker:
        self._check_open()
        return Worker(self._root.twin(), self.tasks, self.codec, config or WorkerConfig(), self.kit)

    @contextlib.contextmanager
    def stand_in(
        self, store: Store, data: Path, lifespan: Lifespan | None = None
    ) -> Iterator[None]:
        """For tests: keep jobs in this memory store, and workspaces under `data`, for the block.

        Whoever enqueues meanwhile, from any thread, does so there; workers run `lifespan` instead
        of the app's own, if one is given. Closing the app closes the stand-in, no more. Refused
        while a worker runs or a transaction is open, which would then be in two stores.
        """
        self._check_open()
        self._check_idle("before another store can stand in")
        kept = self.url, self._root, self._handles, self._workspaces, self._lifespan
        told, self._limited.told = self._limited.told, set()
        groups = list(self._groups)
        with self._lock:
            self.url, self._root, self._handles = "memory:", store, {}
            self._workspaces = Workspaces(data)
            self._lifespan = lifespan or self._lifespan
        try:
            yield
            self._check_idle("before the block ends")
        finally:
            with self._lock:
                self.url, self._root, self._handles, self._workspaces, self._lifespan = kept
            self._limited.told = told
            if self._closed:
                self._closed = False
                for group in groups:
                    self.include(group)

    def _check_idle(self, when: str) -> None:
        if self._workers:
            raise ConflictError(f"a worker of this app runs: stop it, and await its end, {when}")
        if self._joined.get() is not None:
            raise ConflictError(f"a transaction is open: end it {when}")

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
        while self._groups:
            self._groups.pop().leave()  # they may join another app now
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


def _uuid(given: UUID | str, what: str) -> UUID:
    try:
        return given if isinstance(given, UUID) else UUID(given)
    except ValueError:
        raise InvalidArgumentError(f"{given!r} is not a {what} id; ids are UUIDs") from None
