"""What a task holds while it runs: who it is, and how it says what it is doing."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event as Flag
from threading import Lock
from typing import Any, ParamSpec, Protocol, TypeVar, cast
from uuid import UUID

from windlass.core.codec import Codec, Purpose
from windlass.core.errors import (
    ConfigurationError,
    InvalidArgumentError,
    StaleLeaseError,
    StoreError,
)
from windlass.core.event import LIFECYCLE, EventType, Record
from windlass.core.job import CORRELATION_ID, JobRow, NewJob
from windlass.core.limits import KIB
from windlass.core.outcome import Succeeded, succeed
from windlass.core.progress import DEFAULT_STAGES, StageMap, advance, eta
from windlass.core.transition import Status, check, check_records
from windlass.store import Saying, Store
from windlass.stores.connections import borrow
from windlass.stores.transacting import Joining
from windlass.task import TaskSpec, encode_result
from windlass.worker.kit import Kit
from windlass.worker.trouble import Trouble
from windlass.workspace import Kind

P = ParamSpec("P")
T = TypeVar("T")
J = TypeVar("J")
J_co = TypeVar("J_co", covariant=True)
MAX_MESSAGE = 8 * KIB  # characters; they fit into an event however they are encoded
RETRY_STORE = 0.25


def storable(text: str, limit: int = MAX_MESSAGE) -> str:
    """Text as it can be stored: what is said in passing is cut short rather than refused."""
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


class Enqueueable(Protocol[P, J_co]):
    """A task, as far as a running one needs to know it; `J` is the handle on its job."""

    def new_job(self, *args: P.args, **kwargs: P.kwargs) -> NewJob: ...
    async def aenqueue(self, *args: P.args, **kwargs: P.kwargs) -> J_co: ...


class Context:
    """One attempt, as its task sees it. Works from the task's own thread, whichever that is."""

    __slots__ = (
        "_began", "_children", "_codec", "_flag", "_flushing", "_kit", "_lock", "_loop", "_n",
        "_pending", "_percent", "_spec", "_stage", "_stages", "_steps", "_store", "cancelled",
        "current_step", "flushed_at", "job", "settling", "state", "used_workspace",
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
        self.job = job
        self._spec = spec
        self.settling = False  # its success may be stored before the task returns
        self.state = state  # what the worker's lifespan yielded
        self._kit = kit or Kit()
        self._children: list[NewJob] = []
        self.used_workspace = False
        self._store = store
        self._codec = codec
        self._loop = loop
        self._began = loop.time()
        self._stages = stages
        self._lock = Lock()  # a sync task speaks from its own thread
        self._flushing: asyncio.Lock | None = None  # made by the first who stores what was said
        self._n = 0
        self._stage: str | None = None  # where an earlier attempt was says nothing about this one
        self._percent = job.percent
        self._pending: list[Record] = []
        self._steps: dict[str, bytes] | None = None
        self.current_step: str | None = None
        self.cancelled = False  # whether it was asked to stop: threads look at this
        self._flag: Flag | None = None  # made for whoever wants to wait for it
        self.flushed_at = 0.0  # by the loop's clock

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
        """One correlation id for all that comes of one job, unless the child has its own."""
        if CORRELATION_ID in new.headers:
            return new
        return replace(new, headers={**new.headers, CORRELATION_ID: self.job.correlation_id})

    @property
    def children(self) -> tuple[NewJob, ...]:
        return tuple(self._children) if self._children else ()

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

    # -- saying

    def _add(self, kind: EventType, data: dict[str, Any] | None = None, **values: Any) -> None:
        body = None if data is None else self._codec.encode(data, Purpose.EVENT)
        with self._lock:
            record = Record(n=self._n + 1, type=kind, body=body, **values)
            check_records([record])
            self._n += 1
            last = self._pending[-1] if self._pending else None
            if last is not None and last.type is kind is EventType.STEP_PROGRESS:
                # Nobody has seen the last one yet: only the newest counts.
                self._pending[-1] = record
            else:
                self._pending.append(record)

    def stage(self, name: str) -> None:
        """Say what the task is doing from now on."""
        self._stage = name
        self.progress(0)

    def progress(self, percent: float, message: str | None = None) -> None:
        """How far the current stage is; without a stage, the whole job. Never blocks."""
        stage = self._stage
        whole = percent if stage is None else self._stages.percent(stage, percent)
        self._percent = advance(self._percent, whole)
        said: dict[str, Any] = {} if message is None else {"message": storable(message)}
        left = eta(self._loop.time() - self._began, self.job.percent, self._percent)
        if left is not None:
            said["etaSeconds"] = left
        self._add(
            EventType.STEP_PROGRESS,
            said or None,
            percent=self._percent,
            stage=stage,
            phase=self._phase,
            step=self.current_step,
        )

    @property
    def _phase(self) -> str | None:
        return None if self._stage is None else self._stages.phase(self._stage).name

    def log(self, message: str, level: str = "info") -> None:
        said = {"level": level, "message": storable(message)}
        self._add(EventType.LOG, said, step=self.current_step)

    def warn(self, message: str) -> None:
        self._add(EventType.WARNING, {"message": storable(message)}, step=self.current_step)

    def artifact(self, name: str, uri: str, size: int | None = None) -> None:
        """Say what was made and where it is; the job's last event lists all of them."""
        made = {"name": storable(name), "uri": storable(uri), "size": size}
        self._add(EventType.ARTIFACT, made, step=self.current_step)

    def emit(self, kind: EventType | str, data: Mapping[str, Any]) -> None:
        """Add an event of any kind that is a task's to tell."""
        try:
            known = EventType(kind)
        except ValueError:
            theirs = ", ".join(sorted(set(EventType) - LIFECYCLE))
            raise InvalidArgumentError(
                f"{kind!r} is no kind of event; a task may emit {theirs}"
            ) from None
        self._add(known, dict(data), step=self.current_step)

    def take(self) -> tuple[Record, ...]:
        """What was said since this was last asked."""
        if not self._pending:
            return ()
        with self._lock:
            taken, self._pending = tuple(self._pending), []
        return taken

    def put_back(self, records: tuple[Record, ...]) -> None:
        with self._lock:
            self._pending[:0] = records

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
        trouble = Trouble(f"a step of job {self.job.id}")
        while True:
            try:
                done = await call()
            except StoreError as error:
                trouble.met(error)
                await asyncio.sleep(RETRY_STORE)
            else:
                trouble.over()
                return done

    @property
    def has_said(self) -> bool:
        return bool(self._pending)

    @property
    def flushing(self) -> bool:
        return self._flushing is not None and self._flushing.locked()

    async def quiet(self) -> None:
        """Return when no write is under way."""
        if self._flushing is not None:
            async with self._flushing:
                pass

    async def flush(self) -> None:
        """Store what was said so far; raises when this attempt no longer holds its lease."""
        if self._flushing is None:
            self._flushing = asyncio.Lock()
        async with self._flushing:  # one at a time: the store drops what is older than what it has
            records = self.take()
            if not records:
                return
            self.flushed_at = self._loop.time()
            try:
                [answer] = await self._store.record([Saying(self.job.lease, records)])
            except BaseException:
                self.put_back(records)  # repeated later; the store drops what it already has
                raise
        if answer.status is Status.REFUSED and answer.error is not None:
            raise answer.error
        if not answer.applied:
            raise StaleLeaseError(f"job {self.job.id} is no longer held by this attempt")
