"""What a running attempt says: kept until it is stored, in order, and told once."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from threading import Lock
from typing import Any

from windlass.core.codec import Codec, Purpose
from windlass.core.decisions.transition import Status, check_records
from windlass.core.errors import InvalidArgumentError, StaleLeaseError
from windlass.core.event import LIFECYCLE, EventType, Record
from windlass.core.job.progress import DEFAULT_STAGES, StageMap, advance, eta
from windlass.core.job.row import JobRow
from windlass.core.sizes import KIB
from windlass.store import Saying, Store

MAX_MESSAGE = 8 * KIB  # characters; they fit into an event however they are encoded


def storable(text: str, limit: int = MAX_MESSAGE) -> str:
    """Text as it can be stored: what is said in passing is cut short rather than refused."""
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


class Speech:
    """The part of a context that speaks. Works from the task's own thread, whichever that is."""

    __slots__ = (
        "_began", "_codec", "_flushing", "_lock", "_loop", "_n", "_pending", "_percent", "_stage",
        "_stages", "_store", "current_step", "flushed_at", "job",
    )  # fmt: skip

    def __init__(
        self,
        job: JobRow,
        store: Store,
        codec: Codec,
        loop: asyncio.AbstractEventLoop,
        stages: StageMap = DEFAULT_STAGES,
    ) -> None:
        self.job = job
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
        self.current_step: str | None = None
        self.flushed_at = 0.0  # by the loop's clock

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

    # -- storing it

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
