"""Events encoded for streams: each has at least the keys of its type."""

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
from windlass.server.schemas.base import time
from windlass.server.schemas.jobs import EventView, iso
from windlass.store import Store
from windlass.stores.event_decoder import EventDecoder, decode_event
from windlass.stores.wire_format import EVENT, event_message

_LINE_ENDS = {0x85: r"\u0085", 0x2028: r"\u2028", 0x2029: r"\u2029"}
REQUIRED_KEYS: Mapping[EventType, tuple[str, ...]] = {
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


class EncodedEvent:
    """One decoded event, encoded once for all clients; `source` is the event as stored."""

    def __init__(self, event: Event, source: Event) -> None:
        self.event = event
        self._source = source
        self.seq: int = event.seq
        self.at: Instant = event.at
        self.type: EventType = event.type
        self.final: bool = event.final
        self.always_sent = event.final or event.type is EventType.RESYNC
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
    def for_job_stream(self) -> bytes:
        """Return the message of a stream of this job alone; its id is the cursor."""
        return sse_message(self.type.value, to_json(self.data), self.event.wire_id)

    @cached_property
    def for_store_tail(self) -> bytes:
        """Return the message for a remote store handle: the stored event."""
        data = event_message().dump(event=self._source).decode()
        return sse_message(EVENT, data, self.event.wire_id)

    @cached_property
    def for_shared_stream(self) -> bytes:
        """Return the message of a stream of many jobs; its data has the job id and the sequence."""
        return sse_message(
            self.type.value, to_json(self.view.model_dump(mode="json", by_alias=True))
        )


def _data(event: Event) -> dict[str, Any]:
    data = dict(event.data)
    if event.type is EventType.RESYNC:
        data = _resync_data(data) | {"jobId": str(event.job_id)}
    elif isinstance(data.get("error"), dict):
        data["error"] = data["error"] | {"at": iso(data["error"]["at"])}
    for key in REQUIRED_KEYS.get(event.type, ()):
        data.setdefault(key, None)
    data["correlationId"] = event.correlation_id
    return data


def _resync_data(data: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the stored state of a job to API names and times."""
    error = data.get("error")
    fields = {
        to_camel(name): iso(value) if name.endswith("_at") and isinstance(value, int) else value
        for name, value in data.items()
        if name != "error"
    }
    return fields | {"error": error | {"at": iso(error["at"])} if error else None}


def to_json(value: Any) -> str:
    """Encode as one line of JSON, also for clients that split lines at more characters."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    return text.translate(_LINE_ENDS)


def sse_message(event: str, data: str, event_id: str | None = None) -> bytes:
    """Format a message; `data` must be one line, so that it cannot start another field."""
    id_field = "" if event_id is None else f"id: {event_id}\n"
    return f"{id_field}event: {event}\ndata: {data}\n\n".encode()


def encode_event(event: Event, codec: Codec) -> EncodedEvent:
    """Encode any event but the final one, which needs an `EventEncoder`."""
    return EncodedEvent(decode_event(event, codec), event)


class EventEncoder:
    """Encodes the events of a job after `after`; the final one summarizes all events."""

    def __init__(self, store: Store, codec: Codec, job_id: UUID, after: int) -> None:
        self._store = store
        self._codec = codec
        self._job_id = job_id
        self._decoder = EventDecoder(codec)
        self._from_start = after == 0

    def collect(self, encoded: EncodedEvent) -> None:
        """Include an event that was encoded elsewhere in the summary."""
        self._decoder.collect(encoded.event)

    async def encode(self, event: Event) -> EncodedEvent:
        if event.final and not self._from_start:  # the summary needs the earlier events
            self._decoder = EventDecoder(self._codec)
            await self._decoder.catch_up(self._store, self._job_id, event.seq - 1)
        return EncodedEvent(self._decoder.decode(event), event)
