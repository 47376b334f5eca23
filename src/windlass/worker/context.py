"""Context of a running task: its identity, workspaces, child jobs, steps and waits.

Events and progress are in `event_buffer`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event as ThreadEvent
from typing import Any, ParamSpec, Protocol, TypeVar, cast
from uuid import UUID

from windlass.core.clock import SECOND, after
from windlass.core.codec import Codec, Purpose
from windlass.core.decisions.outcome import Succeeded, succeed
from windlass.core.decisions.transition import SIGNAL_PREFIX, check_transition
from windlass.core.duration import Duration, to_seconds
from windlass.core.errors import ConfigurationError, StoreError
from windlass.core.event import EventType
from windlass.core.job.new_job import CORRELATION_ID, NewJob
from windlass.core.job.progress import DEFAULT_STAGES, StageMap
from windlass.core.job.row import JobRow
from windlass.store import Store
from windlass.stores.borrowed_connection import borrow
from windlass.stores.transaction_protocols import SupportsWithin
from windlass.task_spec import TaskSpec, encode_result
from windlass.worker.app_parts import AppParts
from windlass.worker.dependency_results import (
    ChildResults,
    check_not_pruned,
    child_id,
    collect_results,
    read_children,
    with_id,
)
from windlass.worker.event_buffer import EventBuffer
from windlass.worker.suspension import Suspend
from windlass.workspace import WorkspaceKind

P = ParamSpec("P")
T = TypeVar("T")
J = TypeVar("J")
J_co = TypeVar("J_co", covariant=True)
STORE_RETRY_DELAY = 0.25


class Enqueueable(Protocol[P, J_co]):
    """The part of a task that a context uses; `J` is the handle on its job."""

    def new_job(self, *args: P.args, **kwargs: P.kwargs) -> NewJob: ...
    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> J_co: ...


class Context(EventBuffer):
    """One attempt, as its task sees it. Works from any thread."""

    __slots__ = (
        "_cancel_event",
        "_checkpoints",
        "_map_counts",
        "_parts",
        "_spec",
        "cancelled",
        "children",
        "fan_out",
        "settling",
        "state",
        "used_workspace",
    )  # fmt: skip

    def __init__(
        self,
        job: JobRow,
        store: Store,
        codec: Codec,
        loop: asyncio.AbstractEventLoop,
        stages: StageMap = DEFAULT_STAGES,
        *,
        parts: AppParts | None = None,
        state: Any = None,
        spec: TaskSpec | None = None,
    ) -> None:
        super().__init__(job, store, codec, loop, stages)
        self._spec = spec
        self.settling = False  # set when the task may store its success by itself
        self.state = state  # yielded by the worker's lifespan
        self._parts = parts or AppParts()
        self.children: list[NewJob] = []  # jobs to enqueue with a success
        self._map_counts: dict[str, int] = {}  # calls of `map` per task so far
        self.fan_out: tuple[NewJob, ...] = ()  # jobs to enqueue with a suspension
        self.used_workspace = False
        self._checkpoints: dict[str, bytes] | None = None
        self.cancelled = False  # set when the task must stop; threads poll it
        self._cancel_event: ThreadEvent | None = None  # created on first use

    @property
    def attempt(self) -> int:
        return self.job.attempt

    @property
    def fence(self) -> int:
        """Fencing token: grows with each claim.

        External systems that store the highest value can refuse a stale attempt.
        """
        return self.job.fence

    @property
    def cancel_flag(self) -> ThreadEvent:
        """For a thread that waits instead of polling: `ctx.cancel_flag.wait(5)`."""
        with self._lock:
            if self._cancel_event is None:
                self._cancel_event = ThreadEvent()
                if self.cancelled:
                    self._cancel_event.set()
            return self._cancel_event

    def request_stop(self) -> None:
        with self._lock:
            self.cancelled = True
            if self._cancel_event is not None:
                self._cancel_event.set()

    # -- workspaces

    @property
    def workspace(self) -> Path:
        """A directory for temporary files, kept between attempts and after failure."""
        return self._directory(WorkspaceKind.TEMP)

    @property
    def proxy(self) -> Path:
        """A directory for files that are costly to make again: kept longer after a failure."""
        return self._directory(WorkspaceKind.PROXY)

    def _directory(self, kind: WorkspaceKind) -> Path:
        if self._parts.workspaces is None:
            raise ConfigurationError("this worker has no data directory for workspaces")
        self.used_workspace = True
        return self._parts.workspaces.path(kind, self.job.lineage)

    # -- enqueuing jobs

    def then(self, task: Enqueueable[P, Any], *args: P.args, **kwargs: P.kwargs) -> UUID:
        """Enqueue a job in the same transaction as this attempt's success."""
        child = self.prepare_child(task.new_job(*args, **kwargs))
        with self._lock:
            self.children.append(child)
        return child.id

    async def aenqueue(self, task: Enqueueable[P, J], *args: P.args, **kwargs: P.kwargs) -> J:
        """Enqueue a job immediately, independent of this job's outcome."""
        if self._parts.enqueue is None:
            raise ConfigurationError("this worker belongs to no app; use the task's own aenqueue")
        [job] = await self._parts.enqueue([self._inherit(task.new_job(*args, **kwargs))])
        return cast("J", job)

    def enqueue(self, task: Enqueueable[P, J], *args: P.args, **kwargs: P.kwargs) -> J:
        """Same as `aenqueue`, for a sync task."""
        self._require_thread("enqueue", "aenqueue")
        work = self.aenqueue(task, *args, **kwargs)
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _require_thread(self, name: str, instead: str) -> None:
        """Raise on the worker's own loop, where a sync call would deadlock."""
        with contextlib.suppress(RuntimeError):
            if asyncio.get_running_loop() is self._loop:
                raise ConfigurationError(
                    f"ctx.{name} would block the worker: write `await ctx.{instead}(…)`"
                )

    def prepare_child(self, new: NewJob) -> NewJob:
        """Apply inherited fields and middleware to a child job."""
        return self._parts.middleware.enqueue(self._inherit(new))

    def _inherit(self, new: NewJob) -> NewJob:
        """Inherit flow and correlation id, unless the child has its own."""
        if new.flow_id is None and self.job.flow_id is not None:
            new = replace(new, flow_id=self.job.flow_id)
        if CORRELATION_ID in new.headers:
            return new
        return replace(new, headers={**new.headers, CORRELATION_ID: self.job.correlation_id})

    # -- waiting without a slot

    async def amap(
        self, task: Enqueueable[..., Any], items: Iterable[Any], *, name: str | None = None
    ) -> list[Any]:
        """Enqueue a job of `task` for each item; wait for the results without holding a slot.

        An item is one argument, a tuple of arguments, or a mapping of named arguments. The jobs are
        stored in one write with the end of this attempt. When all have ended, the task runs again
        from its beginning, and this call returns the results. Set `name` if a task has several
        calls whose order may change. Raise ChildrenFailed if a job did not succeed, MissingInput if
        one was pruned.
        """
        jobs = [
            self._check_mappable(task.new_job(*_positional(item), **_named(item))) for item in items
        ]
        label = task.new_job.__self__.name if name is None else name  # type: ignore[attr-defined]
        self._map_counts[label] = number = self._map_counts.get(label, 0) + 1
        ids = [child_id(self.job, f"{label}#{number}", index) for index in range(len(jobs))]
        found = await self.child_results(ids)
        check_not_pruned(found, ids, label)
        if found.unfinished or found.missing:
            new_jobs = [
                self.prepare_child(with_id(jobs[index], ids[index])) for index in found.missing
            ]
            raise Suspend(
                awaits=[ids[index] for index in sorted([*found.unfinished, *found.missing])],
                children=new_jobs,
            )
        return collect_results(found, ids, label)

    def _check_mappable(self, new: NewJob) -> NewJob:
        """Refuse deduplication keys and another owner: `map` finds its children by their ids."""
        if new.unique_key is not None or new.request_id is not None:
            raise ConfigurationError(
                f"ctx.map cannot enqueue jobs of {new.task!r} with a unique_key or request_id: "
                "deduplication may return another job; remove these options"
            )
        if new.owner not in {"", self.job.owner}:
            raise ConfigurationError(
                f"job {self.job.id} of owner {self.job.owner!r} cannot wait for jobs of owner "
                f"{new.owner!r}"
            )
        return new if new.owner == self.job.owner else replace(new, owner=self.job.owner)

    def map(
        self, task: Enqueueable[..., Any], items: Iterable[Any], *, name: str | None = None
    ) -> list[Any]:
        """Same as `amap`, for a sync task."""
        self._require_thread("map", "amap")
        work = self.amap(task, items, name=name)
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def await_for(self, name: str, timeout: Duration | None = None) -> Any:
        """Wait for `app.signal(job, name, value)` without holding a slot; return the value.

        The signal may have arrived before. Raise TimeoutError if it does not arrive in time,
        counted from the first attempt that waited.
        """
        found = await self.find_signal(name)
        if found is not None:
            return found["value"]
        remaining: float | None = None
        if timeout is not None:
            length = to_seconds(timeout, "timeout")
            deadline = await self.astep(f"wait:{name}", self._deadline_after, length)
            remaining = (deadline - (self.job.started_at or 0)) / SECOND
            if remaining <= 0:
                raise TimeoutError(f"no signal {name!r} arrived within {length:g} s")
        raise Suspend(timeout=remaining, signals=self.job.signals)

    def wait_for(self, name: str, timeout: Duration | None = None) -> Any:
        """Same as `await_for`, for a sync task."""
        self._require_thread("wait_for", "await_for")
        work = self.await_for(name, timeout)
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _deadline_after(self, length: float) -> int:
        return after(self.job.started_at or 0, length)

    async def child_results(self, ids: Sequence[UUID]) -> ChildResults:
        """Read the states and results of these jobs."""
        return await self._retry_store(
            lambda: read_children(self._store, self._codec, self.job, ids)
        )

    async def find_signal(self, name: str) -> dict[str, Any] | None:
        """Return the signal as {"value": …}, or None if it has not arrived."""
        checkpoint = await Context._load_checkpoint(self, SIGNAL_PREFIX + name)
        return (
            None
            if checkpoint is None
            else {"value": self._codec.decode(checkpoint, Purpose.CHECKPOINT)}
        )

    # -- success in the task's own transaction

    def settle_within(self, connection: Any, result: Any = None) -> None:
        """Store this attempt's success, with `result`, in your own PostgreSQL transaction.

        Your writes and the success then commit together. Make it the last statement, commit at
        once, and return the same result. Raise StaleLeaseError if the lease was lost or a cancel
        accepted; the transaction can then only roll back.
        """
        self._require_thread("settle_within", "asettle_within")
        work = self._settlement(self._check_result(result))
        borrow(connection).call(*asyncio.run_coroutine_threadsafe(work, self._loop).result())

    async def asettle_within(self, connection: Any, result: Any = None) -> None:
        """Same as `settle_within`, for an async task and an async connection."""
        await borrow(connection).acall(*await self._settlement(self._check_result(result)))

    def _check_result(self, result: Any) -> Any:
        return result if self._spec is None else self._spec.signature.result(result)

    async def _settlement(self, result: Any) -> tuple[str, str]:
        return await self.settlement(result, self.children)

    async def settlement(self, result: Any, children: Sequence[NewJob]) -> tuple[str, str]:
        """Return the SQL for the task's connection and its argument. Flushes events first."""
        if not isinstance(self._store, SupportsWithin):
            raise ConfigurationError(
                "settle_within needs a PostgreSQL store: the same database as the rows of the task"
            )
        outcome = Succeeded(result=encode_result(result, self._codec))
        transition = succeed(self.job, outcome, children=children)
        check_transition(transition)
        await self.flush()
        self.settling = True
        return self._store.settlement(transition)

    # -- steps

    async def astep(
        self,
        name: str,
        function: Callable[..., Awaitable[T]],
        *args: Any,
        resumable: bool = True,
        **kwargs: Any,
    ) -> T:
        """Run a step of the task once: later attempts get its recorded result.

        With `resumable=False` it runs in each attempt, and a resume cannot start after it.
        """
        if resumable and (checkpoint := await self._load_checkpoint(name)) is not None:
            return cast("T", self._codec.decode(checkpoint, Purpose.CHECKPOINT))
        outer, self.current_step = self.current_step, name
        value = await function(*args, **kwargs)
        value = await self._complete_step(name, value, resumable=resumable)
        self.current_step = outer
        return value

    def step(
        self,
        name: str,
        function: Callable[..., T],
        *args: Any,
        resumable: bool = True,
        **kwargs: Any,
    ) -> T:
        """Same as `astep`, for a sync task; the function runs on the task's own thread."""
        self._require_thread("step", "astep")
        if resumable:
            checkpoint = asyncio.run_coroutine_threadsafe(
                self._load_checkpoint(name), self._loop
            ).result()
            if checkpoint is not None:
                return cast("T", self._codec.decode(checkpoint, Purpose.CHECKPOINT))
        outer, self.current_step = self.current_step, name
        value = function(*args, **kwargs)
        work = self._complete_step(name, value, resumable=resumable)
        value = asyncio.run_coroutine_threadsafe(work, self._loop).result()
        self.current_step = outer
        return value

    async def _complete_step(self, name: str, value: T, *, resumable: bool) -> T:
        """Record the step. Return the decoded checkpoint, as later attempts will see it."""
        if not resumable:
            self.record_step(name)
            return value
        checkpoint = await self._save_checkpoint(name, value)
        return cast("T", self._codec.decode(checkpoint, Purpose.CHECKPOINT))

    def record_step(self, name: str, checkpoint: bytes | None = None) -> None:
        """Record that a step is completed."""
        self._add(
            EventType.STEP_STATUS,
            step=name,
            status="completed",
            phase=self._phase,
            checkpoint=checkpoint,
        )

    async def _load_checkpoint(self, name: str) -> bytes | None:
        if self._checkpoints is None:
            [found] = await self._retry_store(lambda: self._store.checkpoints([self.job.id]))
            self._checkpoints = {step: point.value for step, point in found.items()}
        return self._checkpoints.get(name)

    async def _save_checkpoint(self, name: str, value: Any) -> bytes:
        data = self._codec.encode(value, Purpose.CHECKPOINT)
        self.record_step(name, data)
        await self._retry_store(self.flush)
        assert self._checkpoints is not None
        self._checkpoints[name] = data
        return data

    async def _retry_store(self, call: Callable[[], Awaitable[T]]) -> T:
        """Retry until the store is available: an outage does not fail the task."""
        while True:
            try:
                result = await call()
            except StoreError as error:
                self._parts.step_outages.failed(error, f"Storing a step of job {self.job.id}")
                await asyncio.sleep(STORE_RETRY_DELAY)
            else:
                self._parts.step_outages.succeeded()
                return result


def _positional(item: Any) -> tuple[Any, ...]:
    if isinstance(item, Mapping):
        return ()
    return item if isinstance(item, tuple) else (item,)


def _named(item: Any) -> dict[str, Any]:
    return dict(item) if isinstance(item, Mapping) else {}
