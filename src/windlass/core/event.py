"""Events of a job, the records that a running attempt writes, and the rows of the stored log."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any
from uuid import UUID

from windlass.core.clock import Instant
from windlass.core.errors import InvalidArgumentError
from windlass.core.job.state import State

ATTEMPT = "attempt"  # type of a log row; never visible to readers
_MAX_DIGITS = 18  # every store can hold such a number


class EventType(StrEnum):
    """Event types, each with the keys of its `data` in parentheses.

    job-status: the job changed its state (status, attempt, percent, stage, phase)
    step-status: a step completed and its result is stored (step, status, phase)
    step-progress: progress of the job (progressPct, message, step, stage, phase, etaSeconds)
    warning: a warning of the task or its worker (message)
    error: an error that does not end the attempt (message)
    job-completed: the job succeeded (status, jobId, percent, output, artifacts, logs)
    job-failed: the job failed (status, jobId, stage, errorMessage, errors, artifacts, logs)
    job-cancelled: the job was canceled (status, jobId, stage, by, message, artifacts, logs)
    cancel-requested: cancellation of a running job was requested (by, reason)
    log: a log line of the task (level, message)
    artifact: a file or object that the task produced (name, uri, size)
    process-start: an external program started; the task defines the keys of the process events
    process-end: an external program ended
    process-error: an external program could not be started
    output: output of an external program
    resync: the earlier log was pruned; the current state (state, attempt, percent, seq)
    """

    JOB_STATUS = "job-status"
    STEP_STATUS = "step-status"
    STEP_PROGRESS = "step-progress"
    WARNING = "warning"
    ERROR = "error"
    JOB_COMPLETED = "job-completed"
    JOB_FAILED = "job-failed"
    JOB_CANCELLED = "job-cancelled"
    CANCEL_REQUESTED = "cancel-requested"
    LOG = "log"
    ARTIFACT = "artifact"
    PROCESS_START = "process-start"
    PROCESS_END = "process-end"
    PROCESS_ERROR = "process-error"
    OUTPUT = "output"
    RESYNC = "resync"


LIFECYCLE = frozenset(
    {
        EventType.JOB_STATUS,
        EventType.JOB_COMPLETED,
        EventType.JOB_FAILED,
        EventType.JOB_CANCELLED,
        EventType.CANCEL_REQUESTED,
        EventType.RESYNC,
    }
)
FINAL_EVENT = {
    State.SUCCEEDED: EventType.JOB_COMPLETED,
    State.FAILED: EventType.JOB_FAILED,
    State.CANCELED: EventType.JOB_CANCELLED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A log record of a running attempt, numbered from 1 so that repeats are dropped.

    `body` is encoded by the codec. A `checkpoint` is the step's result, kept for later attempts.
    """

    n: int
    type: EventType
    body: bytes | None = None
    percent: float | None = None
    stage: str | None = None
    phase: str | None = None
    step: str | None = None
    status: str | None = None
    checkpoint: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogRow:
    """One stored row of a job's log; `type` is an event type's value, or ATTEMPT."""

    seq: int
    at: Instant
    type: str
    attempt: int
    fence: int
    n: int = 0
    data: Mapping[str, Any] = field(default_factory=dict)
    body: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event as readers see it. `data` is plain; `body` is encoded by the codec."""

    job_id: UUID
    seq: int
    at: Instant
    type: EventType
    data: Mapping[str, Any]
    body: bytes | None = None
    correlation_id: str | None = None

    @property
    def wire_id(self) -> str:
        """Return the event id of streams: `{unix milliseconds}-{seq}`."""
        return f"{self.at // 1000}-{self.seq}"

    @property
    def final(self) -> bool:
        """Whether it is the last event of its job."""
        return self.type in FINAL_EVENT.values()


def parse_wire_id(text: str) -> int:
    """Return the seq of a wire id or of a plain number: the resume position of a reader."""
    digits = text.rpartition("-")[2]
    if not (digits.isascii() and digits.isdigit() and len(digits) <= _MAX_DIGITS):
        raise InvalidArgumentError(f"{text!r} is not an event id; expected <milliseconds>-<number>")
    return int(digits)
