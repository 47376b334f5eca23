"""The data of events as JSON."""

from __future__ import annotations

from uuid import UUID

from windlass.core.event import Event, EventType
from windlass.core.job.failure import ErrorKind, Failure
from windlass.schemas.events import event_data

JOB = UUID(int=1)
FAILURE = Failure(code="ValueError", kind=ErrorKind.TERMINAL, step="draw", attempt=2, at=0)
ERROR = {
    "code": "ValueError", "errorType": "TERMINAL", "step": "draw", "attempt": 2,
    "at": "1970-01-01T00:00:00Z",
}  # fmt: skip


def event(kind: EventType, **data: object) -> Event:
    return Event(job_id=JOB, seq=1, at=0, type=kind, data=data)


def test_the_error_of_an_event_has_the_names_of_the_error_of_a_job() -> None:
    failed = event_data(event(EventType.JOB_FAILED, status="failed", error=FAILURE.fields()))
    assert failed["error"] == ERROR
    resync = event_data(event(EventType.RESYNC, state="failed", error=FAILURE.fields()))
    assert resync["error"] == ERROR


def test_an_error_that_a_task_reports_stays_as_it_is() -> None:
    data = event_data(event(EventType.LOG, message="odd", error={"any": "fields"}))
    assert data["error"] == {"any": "fields"}
