"""Schemas of events: the data of an event has at least the keys of its type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic.alias_generators import to_camel

from windlass.core.clock import to_datetime
from windlass.core.event import LIFECYCLE, Event, EventType
from windlass.schemas.base import JsonModel, iso

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


class EventView(JsonModel):
    """An event of a job; the keys of `data` depend on its type."""

    id: str
    seq: int
    at: datetime
    type: EventType
    job_id: UUID
    correlation_id: str | None
    data: Mapping[str, Any]

    @staticmethod
    def of(decoded: Event, data: Mapping[str, Any]) -> EventView:
        """Describe a decoded event; `data` is its `event_data`."""
        return EventView(
            id=decoded.wire_id,
            seq=decoded.seq,
            at=to_datetime(decoded.at),
            type=decoded.type,
            job_id=decoded.job_id,
            correlation_id=decoded.correlation_id,
            data=data,
        )


class EventPageView(JsonModel):
    """A page of events; `cursor` is the id of the last one. When `ended`, no events will follow."""

    events: Sequence[EventView]
    cursor: str | None
    ended: bool


def event_data(decoded: Event) -> dict[str, Any]:
    """Return the data of a decoded event, with at least the keys of its type."""
    data = dict(decoded.data)
    if decoded.type is EventType.RESYNC:
        data = _resync_data(data) | {"jobId": str(decoded.job_id)}
    elif decoded.type in LIFECYCLE and data.get("error"):
        data["error"] = _error(data["error"])
    for key in REQUIRED_KEYS.get(decoded.type, ()):
        data.setdefault(key, None)
    data["correlationId"] = decoded.correlation_id
    return data


def _resync_data(data: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the stored state of a job to API names and times."""
    fields = {
        to_camel(name): iso(value) if name.endswith("_at") and isinstance(value, int) else value
        for name, value in data.items()
    }
    return fields | {"error": _error(data["error"]) if data.get("error") else None}


def _error(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Convert the fields of a failure to the names of `ErrorView`."""
    return {
        "code": stored["code"],
        "errorType": stored["kind"],
        "step": stored["step"],
        "attempt": stored["attempt"],
        "at": iso(stored["at"]),
    }
