"""Events of a running attempt, buffered until they are stored, in order and once."""

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
from windlass.core.size_limits import KIB
from windlass.store import AttemptRecords, Store

MAX_MESSAGE = 8 * KIB  # characters; they fit into an event in any encoding


def storable_text(text: str, limit: int = MAX_MESSAGE) -> str:
    """Cut text to the limit and replace characters that UTF-8 cannot encode. Never raises."""
    if len(text) > limit:
        text = text[: limit - 1] + "…"
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


class EventBuffer:
    """The part of a context that records events. Works from any thread."""

    __slots__ = (
        "_codec", "_flush_lock", "_last_number", "_lock", "_loop", "_pending", "_percent", "_stage",
        "_stages", "_started_at", "_store", "current_step", "flushed_at", "flushing", "job",
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
        self._started_at = loop.time()
        self._stages = stages
        self._lock = Lock()  # a sync task records events from its own thread
        self._flush_lock: asyncio.Lock | None = None  # created by the first flush
        self.flushing = False
        self._last_number = 0
        self._stage: str | None = None  # not restored from an earlier attempt
        self._percent = job.percent
        self._pending: list[Record] = []
        self.current_step: str | None = None
        self.flushed_at = 0.0  # loop time

    def _add(self, kind: EventType, data: dict[str, Any] | None = None, **values: Any) -> None:
        body = None if data is None else self._codec.encode(data, Purpose.EVENT)
        with self._lock:
            record = Record(n=self._last_number + 1, type=kind, body=body, **values)
            check_records([record])
            self._last_number += 1
            last = self._pending[-1] if self._pending else None
            if last is not None and last.type is kind is EventType.STEP_PROGRESS:
                # The previous progress is not stored yet: only the newest counts.
                self._pending[-1] = record
            else:
                self._pending.append(record)

    def stage(self, name: str) -> None:
        """Set the current stage of the task; its progress starts at 0."""
        self._stage = name
        self.progress(0)

    def progress(self, percent: float, message: str | None = None) -> None:
        """Report progress of the current stage or, without a stage, of the job. Never blocks."""
        stage = self._stage
        total = percent if stage is None else self._stages.percent(stage, percent)
        self._percent = advance(self._percent, total)
        data: dict[str, Any] = {} if message is None else {"message": storable_text(message)}
        remaining = eta(self._loop.time() - self._started_at, self.job.percent, self._percent)
        if remaining is not None:
            data["etaSeconds"] = remaining
        self._add(
            EventType.STEP_PROGRESS,
            data or None,
            percent=self._percent,
            stage=stage,
            phase=self._phase,
            step=self.current_step,
        )

    @property
    def _phase(self) -> str | None:
        return None if self._stage is None else self._stages.phase(self._stage).name

    def log(self, message: str, level: str = "info") -> None:
        """Add a line to the job's log."""
        data = {"level": level, "message": storable_text(message)}
        self._add(EventType.LOG, data, step=self.current_step)

    def warn(self, message: str) -> None:
        """Add a warning to the job's log."""
        self._add(EventType.WARNING, {"message": storable_text(message)}, step=self.current_step)

    def artifact(self, name: str, uri: str, size: int | None = None) -> None:
        """Record an output and its location; the job's last event lists all artifacts."""
        data = {"name": storable_text(name), "uri": storable_text(uri), "size": size}
        self._add(EventType.ARTIFACT, data, step=self.current_step)

    def emit(self, kind: EventType | str, data: Mapping[str, Any]) -> None:
        """Add an event of any type that tasks may emit."""
        try:
            event_type = EventType(kind)
        except ValueError:
            allowed = ", ".join(sorted(set(EventType) - LIFECYCLE))
            raise InvalidArgumentError(
                f"{kind!r} is no event type; a task may emit {allowed}"
            ) from None
        self._add(event_type, dict(data), step=self.current_step)

    def take(self) -> tuple[Record, ...]:
        """Remove and return the pending records."""
        if not self._pending:
            return ()
        with self._lock:
            taken, self._pending = tuple(self._pending), []
        return taken

    def put_back(self, records: tuple[Record, ...]) -> None:
        with self._lock:
            self._pending[:0] = records

    # -- storing

    @property
    def has_pending(self) -> bool:
        return bool(self._pending)

    async def wait_flushed(self) -> None:
        """Return when no flush is in progress."""
        if self._flush_lock is not None:
            async with self._flush_lock:
                pass

    async def flush(self) -> None:
        """Store the pending records. Raise StaleLeaseError if the attempt has lost its lease."""
        if self._flush_lock is None:
            self._flush_lock = asyncio.Lock()
        async with self._flush_lock:  # one at a time: the store drops records with older numbers
            records = self.take()
            if not records:
                return
            self.flushed_at = self._loop.time()
            self.flushing = True
            try:
                [result] = await self._store.record([AttemptRecords(self.job.lease, records)])
            except BaseException:
                self.put_back(records)  # sent again later; the store drops duplicates
                raise
            finally:
                self.flushing = False
        if result.status is Status.REFUSED and result.error is not None:
            raise result.error
        if not result.applied:
            raise StaleLeaseError(f"job {self.job.id} is no longer held by this attempt")
