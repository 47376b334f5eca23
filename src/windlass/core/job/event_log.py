"""Event log of a job: derived from its row and its log rows, and folded back to its state.

Lifecycle events of the creation and of the current attempt have no log row: `derive` makes them
from the job's row. An attempt that ends without ending the job leaves one `ATTEMPT` row, from
which its events are made. `fold` is the reverse: it computes the job's state from events.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from windlass.core.clock import Instant
from windlass.core.event import ATTEMPT, FINAL_EVENT, LIFECYCLE, Event, EventType, LogRow
from windlass.core.job.failure import Failure
from windlass.core.job.row import JobRow
from windlass.core.job.state import State


def derive(row: JobRow, log: Iterable[LogRow], after: int = 0) -> list[Event]:
    """Return the events above `after`, in order: from the log, and derived from the row.

    `log` may start at any row; events at or below `after` are ignored.
    """
    events: list[Event] = []
    if after < row.log_floor:
        after = row.log_floor
        events.append(_resync(row))
    found = [*_of_row(row), *(event for log_row in log for event in _of_log(row, log_row))]
    events += sorted((event for event in found if event.seq > after), key=lambda e: e.seq)
    return events


def page(row: JobRow, log: Iterable[LogRow], after: int, limit: int) -> list[Event]:
    """Return the next events above `after`, at most `limit`, without gaps.

    A store may pass only the first log rows of both kinds (records and past attempts). The page
    ends at the first gap in the numbers.
    """
    kept: list[Event] = []
    expected = after + 1
    for event in derive(row, log, after)[:limit]:
        if event.type is EventType.RESYNC:
            expected = event.seq
        if event.seq != expected:
            break
        kept.append(event)
        expected += 1
    return kept


def _event(row: JobRow, seq: int, at: Instant, data: Mapping[str, Any], **more: Any) -> Event:
    return Event(
        job_id=row.id,
        seq=seq,
        at=at,
        type=more.pop("type", EventType.JOB_STATUS),
        data=data,
        correlation_id=row.correlation_id,
        **more,
    )


def _status(
    state: State, attempt: int, percent: int, stage: str | None, phase: str | None
) -> dict[str, Any]:
    return {
        "status": state.value,
        "attempt": attempt,
        "percent": percent,
        "stage": stage,
        "phase": phase,
    }


def _of_row(row: JobRow) -> Iterator[Event]:
    yield _event(row, 1, row.created_at, _status(State.CREATED, 0, 0, None, None))
    base = (row.base_percent, row.base_stage, row.base_phase)
    before = row.attempt - (1 if row.started_seq else 0)
    if row.queued_seq and row.queued_at is not None:
        yield _event(row, row.queued_seq, row.queued_at, _status(State.QUEUED, before, *base))
    if row.started_seq and row.started_at is not None:
        data = _status(State.RUNNING, row.attempt, *base) | {"worker": row.worker}
        yield _event(row, row.started_seq, row.started_at, data)
    if row.final:
        yield _final(row)


def _final(row: JobRow) -> Event:
    assert row.ended_at is not None
    data = _status(row.state, row.attempt, row.percent, row.stage, row.phase)
    data |= {"jobId": str(row.id), "retryCount": row.retry_count, "crashCount": row.crash_count}
    body = None
    if row.state is State.SUCCEEDED:
        body = row.result
    elif row.state is State.FAILED and row.error is not None:
        data["error"] = row.error.fields()
        body = row.error.body
    elif row.state is State.CANCELED:
        data |= {"by": row.cancel_by, "message": row.cancel_reason}
        if row.error is not None:  # of an earlier attempt; the row keeps it, too
            data["error"] = row.error.fields()
            body = row.error.body
    return _event(row, row.seq, row.ended_at, data, type=FINAL_EVENT[row.state], body=body)


def _of_log(row: JobRow, log_row: LogRow) -> Iterator[Event]:
    if log_row.type != ATTEMPT:
        yield _event(
            row,
            log_row.seq,
            log_row.at,
            log_row.data,
            type=EventType(log_row.type),
            body=log_row.body,
        )
        return
    attempt = log_row.data
    base = (attempt["base_percent"], attempt["base_stage"], attempt["base_phase"])
    yield _event(
        row,
        attempt["queued_seq"],
        attempt["queued_at"],
        _status(State.QUEUED, log_row.attempt - 1, *base),
    )
    running = _status(State.RUNNING, log_row.attempt, *base) | {"worker": attempt["worker"]}
    yield _event(row, attempt["started_seq"], attempt["started_at"], running)
    end = (attempt["percent"], attempt["stage"], attempt["phase"])
    data = _status(State.RETRYING, log_row.attempt, *end) | {
        "outcome": attempt["outcome"],
        "delay": attempt["delay"],
        "retryCount": attempt["retry_count"],
        "crashCount": attempt["crash_count"],
        "error": attempt["error"],
    }
    yield _event(row, log_row.seq, log_row.at, data, body=log_row.body)


def _resync(row: JobRow) -> Event:
    folded = expected_fold(row)
    data: dict[str, Any] = {
        name: getattr(folded, name)
        for name in FoldedJob.__slots__
        if name not in {"error", "result"}
    }
    data["error"] = folded.error.fields() if folded.error else None
    body = folded.result
    if body is None and folded.error is not None:
        body = folded.error.body
    return _event(
        row,
        row.log_floor,
        row.updated_at,
        data,
        type=EventType.RESYNC,
        body=body,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldedJob:
    """State of a job, computed from its events. Always equal to `expected_fold` of its row."""

    state: State | None = None
    attempt: int = 0
    retry_count: int = 0
    crash_count: int = 0
    percent: int = 0
    stage: str | None = None
    phase: str | None = None
    created_at: Instant | None = None
    queued_at: Instant | None = None
    started_at: Instant | None = None
    first_started_at: Instant | None = None
    ended_at: Instant | None = None
    cancel_at: Instant | None = None
    error: Failure | None = None
    result: bytes | None = None
    seq: int = 0


def expected_fold(row: JobRow) -> FoldedJob:
    """Return what `fold` computes from all events of a job, read from its row."""
    return FoldedJob(**{name: getattr(row, name) for name in FoldedJob.__slots__})


def fold(events: Iterable[Event]) -> FoldedJob:
    """Return the state of a job from all its events."""
    values: dict[str, Any] = {}
    for event in events:
        values["seq"] = max(event.seq, values.get("seq", 0))
        if event.type is EventType.RESYNC:
            values |= dict(event.data)
            values["state"] = State(values["state"])
            succeeded = values["state"] is State.SUCCEEDED
            values["result"] = event.body if succeeded else None
            error = event.data["error"]
            values["error"] = (
                Failure.of(error, None if succeeded else event.body) if error else None
            )
        elif event.type is EventType.CANCEL_REQUESTED:
            values["cancel_at"] = event.at
        elif event.type in LIFECYCLE:
            _fold_status(values, event)
        elif event.type is EventType.STEP_PROGRESS:
            values["percent"] = max(values.get("percent", 0), event.data["progressPct"])
            for name in ("stage", "phase"):
                if event.data.get(name) is not None:
                    values[name] = event.data[name]
    return FoldedJob(**values)


def _fold_status(values: dict[str, Any], event: Event) -> None:
    data = event.data
    state = State(data["status"])
    values |= {name: data[name] for name in ("attempt", "percent", "stage", "phase")}
    values["state"] = state
    if "retryCount" in data:
        values["retry_count"] = data["retryCount"]
        values["crash_count"] = data["crashCount"]
    if data.get("error"):
        values["error"] = Failure.of(data["error"], event.body)
    match state:
        case State.CREATED:
            values["created_at"] = event.at
        case State.QUEUED:
            values |= {"queued_at": event.at, "started_at": None}
        case State.RUNNING:
            values["started_at"] = event.at
            values.setdefault("first_started_at", event.at)
        case State.RETRYING:
            pass
        case State.SUCCEEDED:
            values |= {"result": event.body, "error": None, "ended_at": event.at}
        case State.FAILED | State.CANCELED:
            values["ended_at"] = event.at
