"""Events of a job as lines of a stream: each has at least the keys that its type promises."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Any
from uuid import UUID

from pydantic.alias_generators import to_camel

from windlass.core.clock import Instant
from windlass.core.codec import Codec
from windlass.core.event import Event, EventType
from windlass.job import Told, plain
from windlass.server.schemas.jobs import EventView, iso, time
from windlass.store import Store
from windlass.stores.rpc import EVENT, told_event

_ENDS = {0x85: r"\u0085", 0x2028: r"\u2028", 0x2029: r"\u2029"}
KEYS: Mapping[EventType, tuple[str, ...]] = {
    EventType.JOB_STATUS: ("status", "stage", "phase", "percent", "attempt"),
    EventType.STEP_STATUS: ("step", "status", "phase"),
    EventType.STEP_PROGRESS: ("step", "phase", "progressPct", "message", "etaSeconds"),
    EventType.WARNING: ("message", "step"),
    EventType.ERROR: ("message", "step"),
    EventType.JOB_COMPLETED: ("status", "jobId", "artifacts", "output"),
    EventType.JOB_FAILED: ("status", "jobId", "stage", "errors", "errorMessage", "logs"),
    EventType.JOB_CANCELLED: ("status", "jobId", "stage", "message"),
    EventType.CANCEL_REQUESTED: ("by", "reason"),
    EventType.LOG: ("level", "message"),
    EventType.ARTIFACT: ("name", "uri", "size"),
    EventType.PROCESS_START: ("pid", "startedAt"),
    EventType.PROCESS_END: ("exitCode", "runDuration"),
    EventType.PROCESS_ERROR: ("message",),
    EventType.OUTPUT: ("stream", "text", "offset"),
}


class Line:
    """One event in plain words, encoded once for all who get it; `source` is as it is stored."""

    def __init__(self, event: Event, source: Event) -> None:
        self.event = event
        self._source = source
        self.seq: int = event.seq
        self.at: Instant = event.at
        self.type: EventType = event.type
        self.final: bool = event.final
        self.always = event.final or event.type is EventType.RESYNC
        self.data = _data(event)

    @property
    def view(self) -> EventView:
        event = self.event
        at = time(event.at)
        assert at is not None
        return EventView(
            id=event.wire_id,
            seq=event.seq,
            at=at,
            type=event.type.value,
            job_id=event.job_id,
            correlation_id=event.correlation_id,
            data=self.data,
        )

    @cached_property
    def single(self) -> bytes:
        """On a stream of its job alone; its id is the cursor."""
        return message(self.type.value, dumped(self.data), self.event.wire_id)

    @cached_property
    def stored(self) -> bytes:
        """For a handle of the store: as its `tail` would tell it."""
        data = told_event().dump(event=self._source).decode()
        return message(EVENT, data, self.event.wire_id)

    @cached_property
    def many(self) -> bytes:
        """Among other jobs' events; whose it is, and its number, are inside."""
        return message(self.type.value, dumped(self.view.model_dump(mode="json", by_alias=True)))


def _data(event: Event) -> dict[str, Any]:
    data = dict(event.data)
    if event.type is EventType.RESYNC:
        data = _snapshot(data) | {"jobId": str(event.job_id)}
    elif isinstance(data.get("error"), dict):
        data["error"] = data["error"] | {"at": iso(data["error"]["at"])}
    for key in KEYS.get(event.type, ()):
        data.setdefault(key, None)
    data["correlationId"] = event.correlation_id
    return data


def _snapshot(data: Mapping[str, Any]) -> dict[str, Any]:
    """Where the job stands, as its view would say it."""
    error = data.get("error")
    told = {
        to_camel(name): iso(value) if name.endswith("_at") and isinstance(value, int) else value
        for name, value in data.items()
        if name != "error"
    }
    return told | {"error": error | {"at": iso(error["at"])} if error else None}


def dumped(value: Any) -> str:
    """JSON in one line, also for readers who take more characters for the end of one than SSE."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    return text.translate(_ENDS)


def message(event: str, data: str, event_id: str | None = None) -> bytes:
    """The data are one line, so that nothing in them can begin another field."""
    named = "" if event_id is None else f"id: {event_id}\n"
    return f"{named}event: {event}\ndata: {data}\n\n".encode()


def line_of(event: Event, codec: Codec) -> Line:
    """Of any event but the last, which only a teller can tell."""
    return Line(plain(event, codec), event)


class Teller:
    """Makes lines of the events that follow `after`; the last sums up all that was said."""

    def __init__(self, store: Store, codec: Codec, job_id: UUID, after: int) -> None:
        self._store = store
        self._codec = codec
        self._job_id = job_id
        self._told = Told(codec)
        self._whole = after == 0

    def heard(self, line: Line) -> None:
        """Somebody else has told it; it belongs to the sum all the same."""
        self._told.remember(line.event)

    async def line(self, event: Event) -> Line:
        if event.final and not self._whole:  # what was said before belongs to the sum
            self._told = Told(self._codec)
            await self._told.catch_up(self._store, self._job_id, event.seq - 1)
        return Line(self._told.tell(event), event)
