"""Events encoded for streams."""

from __future__ import annotations

import json
from functools import cached_property
from typing import Any
from uuid import UUID

from windlass.core.clock import Instant
from windlass.core.codec import Codec
from windlass.core.event import Event, EventType
from windlass.schemas.events import EventView, event_data
from windlass.store import Store
from windlass.stores.event_decoder import EventDecoder, decode_event
from windlass.stores.wire_format import EVENT, event_message

_LINE_ENDS = {0x85: r"\u0085", 0x2028: r"\u2028", 0x2029: r"\u2029"}


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
        self.data = event_data(event)

    @property
    def view(self) -> EventView:
        return EventView.of(self.event, self.data)

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
        return sse_message(self.type.value, to_json(self.view.to_json()))


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
