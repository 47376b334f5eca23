"""The cursor of an event stream, and the events that it selects."""

from __future__ import annotations

from dataclasses import dataclass

from windlass.core.clock import Instant
from windlass.core.event import EventType
from windlass.server.streaming.event_encoder import EncodedEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFilter:
    """The cursor of a stream, and the events it selects. The final event is always selected."""

    after: int = 0
    since: Instant | None = None
    types: frozenset[EventType] = frozenset()

    def matches(self, event: EncodedEvent) -> bool:
        if event.always_sent:
            return True
        return (not self.types or event.type in self.types) and (
            self.since is None or event.at >= self.since
        )
