"""The app: `Windlass` connects a store with tasks, jobs and workers."""

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

from windlass.client import Client, check_accepted
from windlass.core.admission.limit import Limit
from windlass.core.clock import Clock
from windlass.core.codec import Codec, JsonCodec
from windlass.core.decisions.enqueue import EnqueueResult
from windlass.core.duration import Duration, to_seconds
from windlass.core.errors import (
    ConfigurationError,
    ConflictError,
    InvalidArgumentError,
    StoreUnavailableError,
)
from windlass.core.job.new_job import NewJob
from windlass.core.job.progress import DEFAULT_STAGES
from windlass.core.job.state import State
from windlass.core.schedule import Schedule
from windlass.flow import Flow, FlowRun
from windlass.job import Job
from windlass.limits import DeclaredLimits, Limits
from windlass.loop_thread import LoopThread
from windlass.options import EnqueueOptions, Stages, new_job, stage_map
from windlass.schedules import Schedules
from windlass.server import HttpApi
from windlass.settings import data_directory, store_url
from windlass.store import Store
from windlass.stores import open_store, public_url
from windlass.stores.transaction_protocols import (
    SupportsTransaction,
    SupportsWithin,
    Transaction,
    TransactionEnqueuer,
)
from windlass.task import TaskContainer, Tasks
from windlass.task_spec import TaskSpec, source_location
from windlass.worker import AppParts, Worker, WorkerConfig
from windlass.worker.lifespan import Lifespan, as_lifespan
from windlass.worker.middleware import Middleware
from windlass.workspace import Workspaces

T = TypeVar("T")


class Windlass(TaskContainer, HttpApi):
    """An application: the store of its jobs, and its tasks.

    `key` is the API key of a server, `https://host`. `data` is the directory of workspaces on this
    host. `stages` maps stages to percentages. `limits` are limits of queues: `{"queue:render":
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
        super().__init__(self)
        self._declared_limits = DeclaredLimits(limits or {})
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
        self._transaction: ContextVar[TransactionEnqueuer | None] = ContextVar(
            "transaction", default=None
        )
        self.schedules = Schedules(self)
        self.limits = Limits(self)

    # -- tasks and hooks

    def add(self, specs: Iterable[TaskSpec]) -> None:
        specs = list(specs)
        limits = [limit for spec in specs for limit in spec.limits.items()]
        self._declared_limits.check(limits)
        super().add(specs)
        self._declared_limits.add(limits)

    def include(self, tasks: Tasks) -> None:
        """Add a group of tasks, including tasks that are added to the group later."""
        self._check_open()
        tasks.join(self)
        self._groups.append(tasks)

    def lifespan(self, function: Callable[[], T]) -> Callable[[], T]:
        """Run it at the start and end of each worker; it yields the value of `ctx.state`."""
        if self._lifespan is not None:
            raise ConfigurationError(
                f"the app has two lifespans, at {source_location(self._lifespan)} and "
                f"{source_location(function)}; merge them"
            )
        self._lifespan = as_lifespan(function)
        return function

    def middleware(self, given: T) -> T:
        """Add hooks for each enqueue (`enqueue(new_job)`) and attempt (`run(ctx, call_next)`)."""
        self._middleware.add(given)
        return given

    @property
    def parts(self) -> AppParts:
        """Return the parts of this app, in addition to its tasks, that workers need."""
        return AppParts(
            app=self,
            stages=self._stages,
            lifespan=self._lifespan,
            middleware=self._middleware,
            workspaces=self._workspaces,
            enqueue=self.aenqueue_many,
            declared_schedules=self._declared_schedules,
            declare_limits=self._declared_limits.store,
            loop_context=self._worker_context,
        )

    def _declared_schedules(self) -> list[Schedule]:
        return [declaration.schedule(self.codec) for declaration in self.declared]

    @contextlib.contextmanager
    def _worker_context(self, loop: asyncio.AbstractEventLoop) -> Iterator[None]:
        """Mark that a worker runs on this loop: refuses blocking calls and `replace_store`."""
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
        """Return a client for the running event loop; each loop has its own store handle."""
        return Client(self._store(), self.codec)

    def _store(self) -> Store:
        """Return the store handle of the running event loop."""
        loop = asyncio.get_running_loop()
        if self._pid == os.getpid() and not self._closed and (handle := self._handles.get(loop)):
            return handle
        self._process_handles()
        with self._lock:
            self._check_open()
            handles = self._handles  # under the lock: `replace_store` replaces it with the root
            if loop not in handles:
                for ended in [other for other in handles if other.is_closed()]:
                    self.sync.submit(handles.pop(ended).close())  # repeated asyncio.run calls
                handles[loop] = self._root.twin()
            return handles[loop]

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailableError(f"the app of {public_url(self.url)} is closed")

    def _process_handles(self) -> dict[asyncio.AbstractEventLoop, Store]:
        if self._pid != os.getpid():  # event loops of the parent process do not run here
            self._pid, self._lock, self._handles = os.getpid(), Lock(), {}
        return self._handles

    def prepare(self, spec: TaskSpec, args: Any, kwargs: Any, options: EnqueueOptions) -> NewJob:
        return new_job(spec, args, kwargs, options, self.codec)

    async def aenqueue_many(self, jobs: list[NewJob], *, atomic: bool = False) -> list[Job[Any]]:
        """Enqueue jobs in one write. Raises the first refusal; the other jobs are stored.

        With `atomic`, either all jobs are stored or none, as for a flow.
        """
        return self._jobs(await self.aenqueue_each(jobs, atomic=atomic))

    async def aenqueue_each(
        self, jobs: list[NewJob], *, atomic: bool = False
    ) -> list[EnqueueResult]:
        """Like `aenqueue_many`, but return a result for each job, in order."""
        if self._middleware.has_enqueue_hooks:
            jobs = [self._middleware.enqueue(job) for job in jobs]
        enqueuer = self._transaction.get()
        if enqueuer is not None:  # another connection might wait for the end of the transaction
            return await enqueuer.aenqueue(jobs, atomic=atomic)
        if self._declared_limits.unstored:
            await self._declared_limits.store(self._store())
        return await self._store().enqueue(jobs, atomic=atomic)

    def enqueue_many(self, jobs: list[NewJob], *, atomic: bool = False) -> list[Job[Any]]:
        enqueuer = self._transaction.get()
        if enqueuer is not None:
            jobs = [self._middleware.enqueue(job) for job in jobs]
            return self._jobs(enqueuer.enqueue(jobs, atomic=atomic))
        return self.sync.call(self.aenqueue_many(jobs, atomic=atomic))

    def flow(self) -> Flow:
        """Create a flow: a graph of jobs, enqueued in one write."""
        return Flow(self)

    async def aflow_run(self, flow_id: UUID | str) -> FlowRun:
        """Return an enqueued flow by its id."""
        run = FlowRun(self, _uuid(flow_id, "flow"))
        await run.arefresh()
        return run

    def flow_run(self, flow_id: UUID | str) -> FlowRun:
        return self.sync.call(self.aflow_run(flow_id))

    async def asignal(self, job: Job[Any] | UUID | str, name: str, value: Any = None) -> State:
        """Send a signal to a job; `ctx.wait_for(name)` returns its value."""
        job_id = job.id if isinstance(job, Job) else _uuid(job, "job")
        return await self.client().signal(job_id, name, value)

    def signal(self, job: Job[Any] | UUID | str, name: str, value: Any = None) -> State:
        return self.sync.call(self.asignal(job, name, value))

    def _jobs(self, results: list[EnqueueResult]) -> list[Job[Any]]:
        for result in results:
            if result.error is not None:
                check_accepted(result)
        return [Job(self, result) for result in results]

    async def ajob(self, job_id: UUID | str) -> Job[Any]:
        """Return the job with this id."""
        return Job(self, await self.client().get(_uuid(job_id, "job")))

    def job(self, job_id: UUID | str) -> Job[Any]:
        return self.sync.call(self.ajob(job_id))

    @contextlib.contextmanager
    def transaction(self, timeout: Duration = 5) -> Iterator[Transaction]:
        """Write your rows and enqueue jobs in one SQLite transaction.

        `tx.execute(sql, parameters)` runs a statement. Jobs enqueued in the block are part of it.
        """
        if not isinstance(self._root, SupportsTransaction):
            raise ConfigurationError(
                f"app.transaction() needs an SQLite store, not {public_url(self.url)}; "
                "for PostgreSQL, write `with app.within(connection):`"
            )
        self._check_open()
        if self._transaction.get() is not None:
            raise ConflictError("a transaction is already open in this context; use that one")
        self._store_limits()
        transaction = self._root.transaction(to_seconds(timeout, "timeout"))
        with self._enqueue_by(transaction):
            try:
                yield transaction
            except BaseException:
                transaction.rollback()
                raise
            else:
                transaction.commit()

    @contextlib.contextmanager
    def within(self, connection: Any) -> Iterator[None]:
        """Enqueue the jobs of the block in your PostgreSQL transaction.

        `connection` is a connection to the app's database: of asyncpg, psycopg 3, SQLAlchemy 2
        (also a session) or Django. The block neither begins nor commits the transaction.
        """
        if not isinstance(self._root, SupportsWithin):
            raise ConfigurationError(
                f"app.within() needs a PostgreSQL store, not {public_url(self.url)}; "
                "for SQLite, write `with app.transaction() as tx:`"
            )
        self._check_open()
        self._store_limits()
        enqueuer = self._root.within(connection)
        with self._enqueue_by(enqueuer):
            try:
                yield
            finally:
                enqueuer.end()

    def _store_limits(self) -> None:
        """Store the declared limits before a transaction, which could block that write.

        Runs on its own thread and event loop, because the caller may run on one.
        """
        if not self._declared_limits.unstored:
            return

        async def store_limits() -> None:
            async with self._root.twin() as store:
                await self._declared_limits.store(store)

        with ThreadPoolExecutor(1, "windlass-limits") as thread:
            thread.submit(asyncio.run, store_limits()).result()

    @contextlib.contextmanager
    def _enqueue_by(self, enqueuer: TransactionEnqueuer) -> Iterator[None]:
        token = self._transaction.set(enqueuer)
        try:
            yield
        finally:
            self._transaction.reset(token)

    # -- running

    @property
    def running_workers(self) -> int:
        """Return the number of workers of this app that run in this process."""
        return self._workers

    def worker(self, config: WorkerConfig | None = None) -> Worker:
        self._check_open()
        return Worker(
            self._root.twin(), self.tasks, self.codec, config or WorkerConfig(), self.parts
        )

    @contextlib.contextmanager
    def replace_store(
        self, store: Store, data: Path, lifespan: Lifespan | None = None
    ) -> Iterator[None]:
        """For tests: use another store, and workspaces under `data`, for the block.

        Applies to all threads. Workers run `lifespan` instead of the app's, if given. Closing the
        app in the block closes only the replacement. Refused while a worker runs or a transaction
        is open, which would then span two stores.
        """
        self._check_open()
        self._check_idle("before the store is replaced")
        kept = self.url, self._root, self._handles, self._workspaces, self._lifespan
        groups = list(self._groups)
        with self._lock:
            stored = self._declared_limits.set_stored(())
            self.url, self._root, self._handles = "memory:", store, {}
            self._workspaces = Workspaces(data)
            self._lifespan = lifespan or self._lifespan
        try:
            yield
            self._check_idle("before the block ends")
        finally:
            with self._lock:
                self._declared_limits.set_stored(stored)
                self.url, self._root, self._handles, self._workspaces, self._lifespan = kept
            if self._closed:
                self._closed = False
                for group in groups:
                    self.include(group)

    def _check_idle(self, when: str) -> None:
        if self._workers:
            raise ConflictError(
                f"a worker of this app is running: stop it and await its end {when}"
            )
        if self._transaction.get() is not None:
            raise ConflictError(f"a transaction is open: end it {when}")

    async def aclose(self) -> None:
        await self._close_handles()
        await asyncio.to_thread(self.sync.close)

    def close(self) -> None:
        with contextlib.suppress(RuntimeError):
            if asyncio.get_running_loop() in self._process_handles():
                raise ConfigurationError("this event loop uses the app: write `await app.aclose()`")
        self.sync.call(self._close_handles())
        self.sync.close()

    async def _close_handles(self) -> None:
        """Close each handle on its own event loop, if that still runs."""
        self._closed = True
        while self._groups:
            self._groups.pop().leave()  # another app can include them now
        here = asyncio.get_running_loop()
        handles = self._process_handles()
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
