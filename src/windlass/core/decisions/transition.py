"""Requests to change a job, and their results.

A `Transition` changes a job as the caller last read it; a `CancelRequest` or a `SignalRequest`
applies to any row. `decide` compares a request with the current row and returns a `Decision`: the
changes to write, or the reason why there are none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol, TypeAlias, TypedDict
from uuid import UUID

from windlass.core import size_limits
from windlass.core.clock import Instant
from windlass.core.errors import InvalidArgumentError, RequestError
from windlass.core.event import LIFECYCLE, LogRow, Record
from windlass.core.fast_dataclass import positional_value, value
from windlass.core.job.failure import Failure
from windlass.core.job.new_job import NewJob
from windlass.core.job.new_job import check_new_job as check_new
from windlass.core.job.retry_policy import MAX_DELAY
from windlass.core.job.state import FINAL, State, Trigger

SIGNAL_PREFIX = "signal:"  # of the step under which a signal is stored


class Status(StrEnum):
    APPLIED = "applied"  # written now, or (for a repeat) before
    STALE = "stale"  # the lease was lost, or the row changed since; nothing written
    CONFLICT = "conflict"  # the job's state forbids it; nothing written
    BUSY = "busy"  # another transaction has locked the job; nothing written, retry
    MISSING = "missing"  # no such job, or no access
    REFUSED = "refused"  # the request is invalid; `error` is the reason


@positional_value
class ApplyResult:
    """Result of one write. `state` is the job's state afterwards, None if it is missing."""

    status: Status
    state: State | None = None
    error: RequestError | None = None

    @property
    def applied(self) -> bool:
        return self.status is Status.APPLIED


@value
class Transition:
    """A requested change of one job, valid only for the row that the caller read.

    `fence` must match the row, and so must `token`, which the lease holder always passes. `delay`
    is in seconds. For SUSPEND, None waits until the job wakes: when all jobs in `awaits` have
    ended, or at a signal beyond the first `signals` ones. `children` are written together with the
    success or suspension, or not at all. With `crash`, the process of the attempt died.
    """

    job_id: UUID
    fence: int
    trigger: Trigger
    token: UUID | None = None
    delay: float | None = None
    result: bytes | None = None
    error: Failure | None = None
    reason: str | None = None
    records: tuple[Record, ...] = ()
    children: tuple[NewJob, ...] = ()
    crash: bool = False
    awaits: tuple[UUID, ...] = ()
    signals: int | None = None


def submit(job_id: UUID) -> Transition:
    """Return the transition that queues a held job."""
    return Transition(job_id=job_id, fence=0, trigger=Trigger.SUBMIT)


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequest:
    """Request to cancel a job. `owner` restricts it to jobs of that owner; None: no restriction."""

    job_id: UUID
    by: str | None = None
    reason: str | None = None
    owner: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SignalRequest:
    """Request to send a named signal to a job; the first one of a name is kept."""

    job_id: UUID
    name: str
    value: bytes = b"null"
    owner: str | None = None

    @property
    def step(self) -> str:
        """Return the step name under which it is stored as a checkpoint."""
        return SIGNAL_PREFIX + self.name


ApplyRequest: TypeAlias = Transition | CancelRequest | SignalRequest
"""A request of `Store.apply`."""


class Changes(TypedDict, total=False):
    """New values of a row; absent keys keep their value."""

    state: State
    trigger: Trigger
    held: bool
    waiting_for: int
    position: int | None
    due_at: Instant | None
    attempt: int
    fence: int
    token: UUID | None
    worker: str | None
    lease_until: Instant | None
    queued_at: Instant | None
    started_at: Instant | None
    first_started_at: Instant | None
    ended_at: Instant | None
    updated_at: Instant
    seq: int
    queued_seq: int
    started_seq: int
    last_record: int
    percent: int
    stage: str | None
    phase: str | None
    base_percent: int
    base_stage: str | None
    base_phase: str | None
    retry_count: int
    crash_count: int
    cancel_at: Instant | None
    cancel_by: str | None
    cancel_reason: str | None
    error: Failure | None
    result: bytes | None
    last_step: str | None
    signals: int
    gate: str | None


@positional_value
class RollupSample:
    """Contribution of one settled attempt to the rollup of its minute; microseconds."""

    outcome: State
    wait: int
    run: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    step: str
    value: bytes
    attempt: int
    at: Instant


@positional_value
class Decision:
    """The result of a request, and the changes to write.

    With `needs_position`, the store assigns the next position in the job's queue or at its gate.
    With `awaits`, the store counts the unfinished ones after it has written the children, and calls
    `decide.after_suspend`. With `clear_waits`, the job no longer waits for any other job.
    """

    result: ApplyResult
    changes: Changes = field(default_factory=Changes)
    log: Sequence[LogRow] = ()
    checkpoints: Sequence[Checkpoint] = ()
    children: Sequence[NewJob] = ()
    needs_position: bool = False
    sample: RollupSample | None = None
    awaits: Sequence[UUID] = ()
    clear_waits: bool = False

    @property
    def ends_job(self) -> bool:
        """Whether this ends the job, so that jobs that depend on it must be updated."""
        return self.changes.get("state") in FINAL


PastOutcome = Callable[[int], tuple[UUID, Trigger] | None]
"""Returns token and outcome of the past attempt with this fence, if the log has it."""


class StoredJob(Protocol):
    """Data of a job outside its lifecycle row. A decision reads it only if it needs it."""

    @property
    def owner(self) -> str: ...

    def past_outcome(self, fence: int) -> tuple[UUID, Trigger] | None:
        """Return token and outcome of the past attempt with this fence, if the log has it."""
        ...

    def has_step(self, step: str) -> bool:
        """Whether the job has a checkpoint of this step."""
        ...


def check_request(request: ApplyRequest) -> None:
    """Raise an error if a request is invalid in itself."""
    if isinstance(request, Transition):
        check_transition(request)
    elif isinstance(request, CancelRequest):
        check_cancel(request)
    else:
        check_signal(request)


def check_transition(transition: Transition) -> None:
    """Raise an error if a transition is invalid in itself."""
    if transition.result is not None:
        size_limits.check_size("the result", transition.result)
    if transition.error is not None:
        size_limits.check_size("the error", transition.error.body, size_limits.MAX_EVENT)
        size_limits.check_text("the error's code", transition.error.code)
        size_limits.check_text("the error's step", transition.error.step)
    if transition.reason is not None:
        size_limits.check_text("the reason", transition.reason, size_limits.MAX_REASON)
    if transition.delay is not None and not 0 <= transition.delay <= MAX_DELAY:
        raise InvalidArgumentError(
            f"delay is {transition.delay} s; it must be between 0 and 10 years"
        )
    if transition.records:
        check_records(transition.records)
    if transition.awaits:
        _check_awaits(transition)
    for child in transition.children:
        check_new(child)
    if transition.children:
        _check_distinct(transition.children)


def _check_awaits(transition: Transition) -> None:
    awaits = set(transition.awaits)
    cycle = (
        child.id in awaits and transition.job_id in child.depends_on
        for child in transition.children
    )
    if transition.job_id in awaits or any(cycle):
        raise InvalidArgumentError(f"job {transition.job_id} would wait for itself")
    if len(awaits) < len(transition.awaits):
        raise InvalidArgumentError(f"job {transition.job_id} awaits the same job twice")


def _check_distinct(children: Sequence[NewJob]) -> None:
    """Raise an error if two children exclude each other."""
    requests = [(child.owner, child.request_id) for child in children if child.request_id]
    if len({child.id for child in children}) < len(children) or len(set(requests)) < len(requests):
        raise InvalidArgumentError("two children have the same id or the same request id")


def check_signal(signal: SignalRequest) -> None:
    size_limits.check_text("the name of the signal", signal.name, size_limits.MAX_NAME)
    if not signal.name:
        raise InvalidArgumentError("the signal has no name")
    size_limits.check_size(f"the value of signal {signal.name!r}", signal.value)


def check_cancel(request: CancelRequest) -> None:
    size_limits.check_text("by", request.by)
    size_limits.check_text("the reason", request.reason, size_limits.MAX_REASON)


def check_records(records: Sequence[Record]) -> None:
    for record in records:
        if record.type in LIFECYCLE:
            raise InvalidArgumentError(
                f"{record.type} events are written by the store; a task cannot record them"
            )
        for name in ("step", "status", "stage", "phase"):
            size_limits.check_text(f"the {name} of a record", getattr(record, name))
        size_limits.check_size(f"the {record.type} event", record.body, size_limits.MAX_EVENT)
        if record.checkpoint is not None:
            size_limits.check_size(f"the checkpoint of step {record.step!r}", record.checkpoint)
            if not record.step:
                raise InvalidArgumentError("a checkpoint needs the name of its step")
