"""Decodes stored events for readers, and adds the summary of a job to its final event."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import Any
from uuid import UUID

from windlass.core.codec import Codec, Purpose
from windlass.core.errors import CodecError
from windlass.core.event import LIFECYCLE, Event, EventType
from windlass.core.size_limits import KIB
from windlass.store import Store

LAST_LINES = 20  # log lines in the final event
LAST_TEXT = 16 * KIB  # characters of these lines in total
_LINE_TYPES = frozenset({EventType.LOG, EventType.WARNING, EventType.ERROR})


class EventDecoder:
    """Decodes the events of one job, and collects the summary of its final event."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._artifacts: list[dict[str, Any]] = []
        self._lines: deque[str] = deque(maxlen=LAST_LINES)

    async def catch_up(self, store: Store, job_id: UUID, until: int) -> None:
        """Collect the summary of the events up to `until`."""
        seq = 0
        while seq < until and (page := await store.events(job_id, seq)) and page.events:
            for event in page.events:
                seq = event.seq
                if seq <= until:
                    self.decode(event)

    def decode(self, event: Event) -> Event:
        """Return the decoded event; the final one with the summary."""
        decoded = decode_event(event, self._codec)
        self.collect(decoded)
        if not event.final:
            return decoded
        summary = {"artifacts": self._artifacts, "logs": list(self._lines)}
        return replace(decoded, data={**decoded.data, **summary})

    def collect(self, decoded: Event) -> None:
        """Add a decoded event to the summary of the final event."""
        if decoded.type is EventType.ARTIFACT:
            self._artifacts.append(dict(decoded.data))
        elif decoded.type in _LINE_TYPES:
            self._add_line(str(decoded.data.get("message", "")))

    def _add_line(self, line: str) -> None:
        """Add a log line; keep the newest ones, at most LAST_TEXT characters but at least one."""
        self._lines.append(line)
        while len(self._lines) > 1 and sum(map(len, self._lines)) > LAST_TEXT:
            self._lines.popleft()


def decode_event(event: Event, codec: Codec) -> Event:
    """Return the event with decoded data; the final one without its summary."""
    data = dict(event.data)
    if event.type is EventType.JOB_COMPLETED:
        data["output"] = decode_if_possible(codec, event.body, Purpose.RESULT)
    elif data.get("error") and event.type is not EventType.RESYNC:
        error = _fields(codec, event, Purpose.ERROR)
        data["errorMessage"] = error.get("message") or data["error"].get("code")
        data["errors"] = [data["errorMessage"]]
    elif event.type not in LIFECYCLE:
        data |= _fields(codec, event, Purpose.EVENT)
    return replace(event, data=data)


def _fields(codec: Codec, event: Event, purpose: Purpose) -> dict[str, Any]:
    """Return the decoded body; empty if it is not an object, since workers may store any bytes."""
    body = decode_if_possible(codec, event.body, purpose)
    return body if isinstance(body, dict) else {}


def decode_if_possible(codec: Codec, body: bytes | None, purpose: Purpose) -> Any:
    """Return the decoded body; None if it is encrypted with a key that is missing here."""
    if body is None:
        return None
    try:
        return codec.decode(body, purpose)
    except CodecError:
        return None
