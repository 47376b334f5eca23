"""The one write door: *if what you saw still holds, then these values and these log rows*.

A `Transition` says what someone who saw a job wants. `decide` looks at where the job stands now and
answers with a `Decision`: the change, or why there is none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypedDict
from uuid import UUID

from windlass.core import sizes
from windlass.core.clock import Instant
from windlass.core.decisions.retry import MAX_DELAY
from windlass.core.errors import InvalidArgumentError, RequestError
from windlass.core.event import LIFECYCLE, LogRow, Record
from windlass.core.job.failure import Failure
from windlass.core.job.row import NewJob
from windlass.core.job.row import check as check_new
from windlass.core.job.state import FINAL, State, Trigger
from windlass.core.value import pair, value

SIGNAL = "signal:"  # how the name of a step begins that is a signal


class Status(StrEnum):
    APPLIED = "applied"  # done, now or (for a repeat) before
    STALE = "stale"  # the lease, or what was seen, is gone; nothing changed
    CONFLICT = "conflict"  # the job's state forbids it; nothing changed
    BUSY = "busy"  # somebody's open transaction has the job; nothing changed, ask again
    MISSING = "missing"  # no such job, or not yours
    REFUSED = "refused"  # the request itself is wrong; the answer's error says how


@pair
class Answer:
    """What became of one write. `state` is the job's state afterwards, None if it is missing."""

    status: Status
    state: State | None = None
    error: RequestError | None = None

    @property
    def applied(self) -> bool:
        return self.status is Status.APPLIED


@value
class Transition:
    """A wish about one job, by someone who saw it under this fence (and, for its holder, token).

    `delay` is in seconds; with SUSPEND, None means until something wakes it: the end of all that it
    `awaits`, or a signal beyond the number of `signals` that it knows of. `children` are written
    with the success or the suspension that carries them, or not at all. `crash` says that the
    process it ran in died.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequest:
    """`owner` narrows the request to that owner's jobs; None is an operator of the whole store."""

    job_id: UUID
    by: str | None = None
    reason: str | None = None
    owner: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Signal:
    """Something that a job may wait for, by name; the first one of a name stays."""

    job_id: UUID
    name: str
    value: bytes = b"null"
    owner: str | None = None

    @property
    def step(self) -> str:
        """It is kept like the result of a step."""
        return SIGNAL + self.name


class Changes(TypedDict, total=False):
    """New values for a row; a key that is absent keeps its value."""

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
    said: int
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


@pair
class Tally:
    """What one settled attempt adds to its minute's rollup."""

    outcome: State
    wait: int
    run: int


@dataclass(frozen=True, slots=True)
class Checkpoint:
    step: str
    value: bytes
    attempt: int
    at: Instant


@pair
class Decision:
    """The answer, and what to write for it.

    With `queue`, the store gives the next position, in the line of its queue or before its gate.
    What it `awaits` is for the store to look up, once the children are written: `decide.suspended`
    says how it goes on. With `unwait`, nobody's end concerns it any more.
    """

    answer: Answer
    changes: Changes = field(default_factory=Changes)
    log: Sequence[LogRow] = ()
    checkpoints: Sequence[Checkpoint] = ()
    children: Sequence[NewJob] = ()
    queue: bool = False
    tally: Tally | None = None
    awaits: Sequence[UUID] = ()
    unwait: bool = False

    @property
    def ends(self) -> bool:
        """Whether the job is over with this: those who wait for it are to be told."""
        return self.changes.get("state") in FINAL


PastOutcome = Callable[[int], tuple[UUID, Trigger] | None]
"""Token and outcome of the past attempt with this fence, if the log has it."""


def check(wish: Transition) -> None:
    """Raise what is wrong with a wish, before anything looks at the job."""
    if wish.result is not None:
        sizes.check_size("the result", wish.result)
    if wish.error is not None:
        sizes.check_size("the error", wish.error.body, sizes.MAX_EVENT)
        sizes.check_text("the error's code", wish.error.code)
        sizes.check_text("the error's step", wish.error.step)
    if wish.reason is not None:
        sizes.check_text("the reason", wish.reason, sizes.MAX_REASON)
    if wish.delay is not None and not 0 <= wish.delay <= MAX_DELAY:
        raise InvalidArgumentError(f"delay is {wish.delay} s; it must lie between 0 and 10 years")
    if wish.records:
        check_records(wish.records)
    if wish.awaits:
        _check_awaits(wish)
    for child in wish.children:
        check_new(child)
    if wish.children:
        _check_apart(wish.children)


def _check_awaits(wish: Transition) -> None:
    awaits = set(wish.awaits)
    circle = (child.id in awaits and wish.job_id in child.depends_on for child in wish.children)
    if wish.job_id in awaits or any(circle):
        raise InvalidArgumentError(f"job {wish.job_id} would wait for itself, for ever")
    if len(awaits) < len(wish.awaits):
        raise InvalidArgumentError(f"job {wish.job_id} would wait for another one twice")


def _check_apart(children: Sequence[NewJob]) -> None:
    """Siblings that contradict each other could not all become real."""
    requests = [(child.owner, child.request_id) for child in children if child.request_id]
    if len({child.id for child in children}) < len(children) or len(set(requests)) < len(requests):
        raise InvalidArgumentError("two children have the same id or the same request id")


def check_signal(signal: Signal) -> None:
    sizes.check_text("the name of the signal", signal.name, sizes.MAX_NAME)
    if not signal.name:
        raise InvalidArgumentError("the signal has no name")
    sizes.check_size(f"the value of signal {signal.name!r}", signal.value)


def check_cancel(request: CancelRequest) -> None:
    sizes.check_text("the name of who cancels", request.by)
    sizes.check_text("the reason", request.reason, sizes.MAX_REASON)


def check_records(records: Sequence[Record]) -> None:
    for record in records:
        if record.type in LIFECYCLE:
            raise InvalidArgumentError(f"{record.type} events come from the store, not from a task")
        for name in ("step", "status", "stage", "phase"):
            sizes.check_text(f"the {name} of a record", getattr(record, name))
        sizes.check_size(f"the {record.type} event", record.body, sizes.MAX_EVENT)
        if record.checkpoint is not None:
            sizes.check_size(f"the checkpoint of step {record.step!r}", record.checkpoint)
            if not record.step:
                raise InvalidArgumentError("a checkpoint needs the name of its step")
