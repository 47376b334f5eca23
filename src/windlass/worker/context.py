"""What a task holds while it runs: who it is, and what it may do.

How it says what it is doing is in `speech`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event as Flag
from typing import Any, ParamSpec, Protocol, TypeVar, cast
from uuid import UUID

from windlass.core.clock import SECOND, after
from windlass.core.codec import Codec, Purpose
from windlass.core.decisions.outcome import Succeeded, succeed
from windlass.core.decisions.transition import SIGNAL, check
from windlass.core.duration import Duration, seconds
from windlass.core.errors import ConfigurationError, StoreError
from windlass.core.event import EventType
from windlass.core.job.progress import DEFAULT_STAGES, StageMap
from windlass.core.job.row import CORRELATION_ID, JobRow, NewJob
from windlass.store import Store
from windlass.stores.borrowed_connection import borrow
from windlass.stores.transactions import Joining
from windlass.task_spec import TaskSpec, encode_result
from windlass.worker.event_buffer import Speech
from windlass.worker.hooks import Kit
from windlass.worker.suspension import Seen, Suspend, check_kept, child_id, gathered, made, see
from windlass.workspace import Kind

P = ParamSpec("P")
T = TypeVar("T")
J = TypeVar("J")
J_co = TypeVar("J_co", covariant=True)
RETRY_STORE = 0.25


class Enqueueable(Protocol[P, J_co]):
    """A task, as far as a running one needs to know it; `J` is the handle on its job."""

    def new_job(self, *args: P.args, **kwargs: P.kwargs) -> NewJob: ...
    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> J_co: ...


class Context(Speech):
    """One attempt, as its task sees it. Works from the task's own thread, whichever that is."""

    __slots__ = (
        "_children", "_flag", "_kit", "_maps", "_spec", "_steps", "cancelled", "fan_out",
        "settling", "state", "used_workspace",
    )  # fmt: skip

    def __init__(
        self,
        job: JobRow,
        store: Store,
        codec: Codec,
        loop: asyncio.AbstractEventLoop,
        stages: StageMap = DEFAULT_STAGES,
        *,
        kit: Kit | None = None,
        state: Any = None,
        spec: TaskSpec | None = None,
    ) -> None:
        super().__init__(job, store, codec, loop, stages)
        self._spec = spec
        self.settling = False  # its success may be stored before the task returns
        self.state = state  # what the worker's lifespan yielded
        self._kit = kit or Kit()
        self._children: list[NewJob] = []
        self._maps: dict[str, int] = {}  # how often each task was mapped over so far
        self.fan_out: tuple[NewJob, ...] = ()  # the jobs that a suspension brings along
        self.used_workspace = False
        self._steps: dict[str, bytes] | None = None
        self.cancelled = False  # whether it was asked to stop: threads look at this
        self._flag: Flag | None = None  # made for whoever wants to wait for it

    @property
    def attempt(self) -> int:
        return self.job.attempt

    @property
    def fence(self) -> int:
        """Grows with each claim: outside systems that remember the highest can refuse a ghost."""
        return self.job.fence

    @property
    def cancel_flag(self) -> Flag:
        """For a thread that would rather wait than look: `ctx.cancel_flag.wait(5)`."""
        with self._lock:
            if self._flag is None:
                self._flag = Flag()
                if self.cancelled:
                    self._flag.set()
            return self._flag

    def ask_to_stop(self) -> None:
        with self._lock:
            self.cancelled = True
            if self._flag is not None:
                self._flag.set()

    # -- a place for files

    @property
    def workspace(self) -> Path:
        """A directory for temporary files, kept between attempts and after failure."""
        return self._directory(Kind.TEMP)

    @property
    def proxy(self) -> Path:
        """The same for what is costly to make again: it outlives the job's failure for longer."""
        return self._directory(Kind.PROXY)

    def _directory(self, kind: Kind) -> Path:
        if self._kit.workspaces is None:
            raise ConfigurationError("this worker has no data directory for workspaces")
        self.used_workspace = True
        return self._kit.workspaces.path(kind, self.job.lineage)

    # -- more jobs

    def then(self, task: Enqueueable[P, Any], *args: P.args, **kwargs: P.kwargs) -> UUID:
        """Enqueue a job that becomes real with this attempt's success, or not at all."""
        child = self.adopt(task.new_job(*args, **kwargs))
        with self._lock:
            self._children.append(child)
        return child.id

    async def aenqueue(self, task: Enqueueable[P, J], *args: P.args, **kwargs: P.kwargs) -> J:
        """Enqueue a job at once, whatever becomes of this one."""
        if self._kit.enqueue is None:
            raise ConfigurationError("this worker belongs to no app; use the task's own aenqueue")
        [job] = await self._kit.enqueue([self._child(task.new_job(*args, **kwargs))])
        return cast("J", job)

    def enqueue(self, task: Enqueueable[P, J], *args: P.args, **kwargs: P.kwargs) -> J:
        """The same for a sync task."""
        self._refuse_loop("enqueue", "aenqueue")
        work = self.aenqueue(task, *args, **kwargs)
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _refuse_loop(self, name: str, instead: str) -> None:
        """On the worker's own loop, a sync call would wait for itself."""
        with contextlib.suppress(RuntimeError):
            if asyncio.get_running_loop() is self._loop:
                raise ConfigurationError(
                    f"ctx.{name} would block the worker: write `await ctx.{instead}(…)`"
                )

    def adopt(self, new: NewJob) -> NewJob:
        """A child as it is handed over."""
        return self._kit.middleware.enqueue(self._child(new))

    def _child(self, new: NewJob) -> NewJob:
        """One flow and one correlation id for all that comes of one job, unless it has its own."""
        if new.flow_id is None and self.job.flow_id is not None:
            new = replace(new, flow_id=self.job.flow_id)
        if CORRELATION_ID in new.headers:
            return new
        return replace(new, headers={**new.headers, CORRELATION_ID: self.job.correlation_id})

    @property
    def children(self) -> tuple[NewJob, ...]:
        return tuple(self._children) if self._children else ()

    # -- waiting without a slot

    async def amap(
        self, task: Enqueueable[..., Any], items: Iterable[Any], *, name: str | None = None
    ) -> list[Any]:
        """Make a job of `task` for each item, and wait for their results without holding a slot.

        A tuple holds the arguments of one, a mapping names them. The jobs are stored in one write,
        with the end of this attempt; when all have ended, the task runs again from its beginning,
        and here it goes on. `name` tells several such places in one task apart if their order may
        change. Raises ChildrenFailed if one of the jobs did not succeed, and MissingInput if one
        that did is not kept any more.
        """
        calls = [self._awaitable(task.new_job(*_positional(it), **_named(it))) for it in items]
        label = task.new_job.__self__.name if name is None else name  # type: ignore[attr-defined]
        self._maps[label] = number = self._maps.get(label, 0) + 1
        ids = [child_id(self.job, f"{label}#{number}", place) for place in range(len(calls))]
        seen = await self.see_all(ids)
        check_kept(seen, ids, label)
        if seen.open or seen.missing:
            fresh = [self.adopt(made(calls[place], ids[place])) for place in seen.missing]
            raise Suspend(
                awaits=[ids[place] for place in sorted([*seen.open, *seen.missing])],
                children=fresh,
            )
        return gathered(seen, ids, label)

    def _awaitable(self, new: NewJob) -> NewJob:
        """A job of the same owner, which no other one can stand for: else it would not be found."""
        if new.unique_key is not None or new.request_id is not None:
            raise ConfigurationError(
                f"ctx.map waits for the jobs of {new.task!r} that it makes, and with a unique_key "
                "or a request_id another one may stand for them: leave these out"
            )
        if new.owner not in {"", self.job.owner}:
            raise ConfigurationError(
                f"job {self.job.id} is of owner {self.job.owner!r}, and cannot wait for jobs of "
                f"{new.owner!r}"
            )
        return new if new.owner == self.job.owner else replace(new, owner=self.job.owner)

    def map(
        self, task: Enqueueable[..., Any], items: Iterable[Any], *, name: str | None = None
    ) -> list[Any]:
        """The same for a sync task."""
        self._refuse_loop("map", "amap")
        work = self.amap(task, items, name=name)
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def await_for(self, name: str, timeout: Duration | None = None) -> Any:
        """Wait for `app.signal(job, name, value)` without holding a slot; answers the value.

        It may have come before. Raises TimeoutError if it does not come in time, counted from the
        first attempt that waited.
        """
        found = await self.signal_of(name)
        if found is not None:
            return found["value"]
        left: float | None = None
        if timeout is not None:
            length = seconds(timeout, "timeout")
            until = await self.astep(f"wait:{name}", self._in, length)
            left = (until - (self.job.started_at or 0)) / SECOND
            if left <= 0:
                raise TimeoutError(f"no signal {name!r} came within {length:g} s")
        raise Suspend(timeout=left, signals=self.job.signals)

    def wait_for(self, name: str, timeout: Duration | None = None) -> Any:
        """The same for a sync task."""
        self._refuse_loop("wait_for", "await_for")
        work = self.await_for(name, timeout)
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _in(self, length: float) -> int:
        return after(self.job.started_at or 0, length)

    async def see_all(self, ids: Sequence[UUID]) -> Seen:
        """What became of these jobs."""
        return await self._insist(lambda: see(self._store, self._codec, self.job, ids))

    async def signal_of(self, name: str) -> dict[str, Any] | None:
        """Whether it came; its value may be anything."""
        kept = await Context._kept(self, SIGNAL + name)
        return None if kept is None else {"value": self._codec.decode(kept, Purpose.CHECKPOINT)}

    # -- a success in the task's own transaction

    def settle_within(self, connection: Any, result: Any = None) -> None:
        """Store this attempt's success, with `result`, in a PostgreSQL transaction of your own.

        Your writes and the success are then there together or not at all. Make it the last
        statement, commit at once, and return the same result. Raises StaleLeaseError, and the
        transaction can only roll back, if the lease was lost or a cancel accepted.
        """
        self._refuse_loop("settle_within", "asettle_within")
        asked = self._settlement(self._plain(result))
        borrow(connection).call(*asyncio.run_coroutine_threadsafe(asked, self._loop).result())

    async def asettle_within(self, connection: Any, result: Any = None) -> None:
        """The same for an async task, and an async connection."""
        await borrow(connection).acall(*await self._settlement(self._plain(result)))

    def _plain(self, result: Any) -> Any:
        return result if self._spec is None else self._spec.signature.result(result)

    async def _settlement(self, result: Any) -> tuple[str, str]:
        return await self.settlement(result, self.children)

    async def settlement(self, result: Any, children: Sequence[NewJob]) -> tuple[str, str]:
        """The statement for the task's connection, and its text. What was said is stored first."""
        if not isinstance(self._store, Joining):
            raise ConfigurationError(
                "settle_within is for jobs in PostgreSQL, beside the rows that a task writes there"
            )
        ended = Succeeded(result=encode_result(result, self._codec))
        wish = succeed(self.job, ended, children=children)
        check(wish)
        await self.flush()
        self.settling = True
        return self._store.settlement(wish)

    # -- steps

    async def astep(
        self,
        name: str,
        function: Callable[..., Awaitable[T]],
        *args: Any,
        resumable: bool = True,
        **kwargs: Any,
    ) -> T:
        """Run a piece of the task once: its result is recorded, and later attempts get that.

        With `resumable=False` it is done whole in each attempt, and nobody resumes after it.
        """
        if resumable and (kept := await self._kept(name)) is not None:
            return cast("T", self._codec.decode(kept, Purpose.CHECKPOINT))
        outer, self.current_step = self.current_step, name
        value = await function(*args, **kwargs)
        value = await self._completed(name, value, resumable=resumable)
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
        """The same for a sync task; the function runs here, on the task's own thread."""
        self._refuse_loop("step", "astep")
        if resumable:
            kept = asyncio.run_coroutine_threadsafe(self._kept(name), self._loop).result()
            if kept is not None:
                return cast("T", self._codec.decode(kept, Purpose.CHECKPOINT))
        outer, self.current_step = self.current_step, name
        value = function(*args, **kwargs)
        ended = self._completed(name, value, resumable=resumable)
        value = asyncio.run_coroutine_threadsafe(ended, self._loop).result()
        self.current_step = outer
        return value

    async def _completed(self, name: str, value: T, *, resumable: bool) -> T:
        """What is kept is what this attempt, too, goes on with."""
        if not resumable:
            self.note_step(name)
            return value
        kept = await self._keep(name, value)
        return cast("T", self._codec.decode(kept, Purpose.CHECKPOINT))

    def note_step(self, name: str, checkpoint: bytes | None = None) -> None:
        """Say that a step is completed."""
        self._add(
            EventType.STEP_STATUS,
            step=name,
            status="completed",
            phase=self._phase,
            checkpoint=checkpoint,
        )

    async def _kept(self, name: str) -> bytes | None:
        if self._steps is None:
            [found] = await self._insist(lambda: self._store.checkpoints([self.job.id]))
            self._steps = {step: point.value for step, point in found.items()}
        return self._steps.get(name)

    async def _keep(self, name: str, value: Any) -> bytes:
        data = self._codec.encode(value, Purpose.CHECKPOINT)
        self.note_step(name, data)
        await self._insist(self.flush)
        assert self._steps is not None
        self._steps[name] = data
        return data

    async def _insist(self, call: Callable[[], Awaitable[T]]) -> T:
        """A store that is away for a while is no failure of the task."""
        while True:
            try:
                done = await call()
            except StoreError as error:
                self._kit.trouble.met(error, f"a step of job {self.job.id}")
                await asyncio.sleep(RETRY_STORE)
            else:
                self._kit.trouble.over()
                return done


def _positional(item: Any) -> tuple[Any, ...]:
    if isinstance(item, Mapping):
        return ()
    return item if isinstance(item, tuple) else (item,)


def _named(item: Any) -> dict[str, Any]:
    return dict(item) if isinstance(item, Mapping) else {}
