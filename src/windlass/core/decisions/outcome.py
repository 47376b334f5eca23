"""How an attempt ended, in the worker's words, and the transition that follows from it.

These functions look at the row as it was seen; `transition.decide` looks at it as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias, assert_never
from uuid import UUID

from windlass.core.decisions import retry
from windlass.core.decisions.retry import Random
from windlass.core.decisions.transition import Transition
from windlass.core.event import Record
from windlass.core.job import failure as failures
from windlass.core.job.failure import ErrorKind, Failure
from windlass.core.job.row import JobRow, NewJob
from windlass.core.job.state import State, Trigger
from windlass.core.value import value


@value
class Succeeded:
    result: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """An error. `delay` overrules the policy's backoff (RetryAfter)."""

    failure: Failure
    delay: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Crashed:
    """The process that ran it died, and its worker saw it: a crash like a lease that ran out."""

    body: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """Given back at once, uncounted: the worker is going away."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snoozed:
    delay: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspended:
    """Waits for something else without a slot; with a timeout, at most that long.

    Until all of `awaits` have ended, or a signal comes beyond the number that it knew of.
    """

    timeout: float | None = None
    awaits: tuple[UUID, ...] = ()
    signals: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Aborted:
    """The task itself raised Cancel, or obeyed one."""

    reason: str | None = None


Outcome: TypeAlias = Succeeded | Failed | Crashed | Released | Snoozed | Suspended | Aborted


def settle(
    job: JobRow,
    outcome: Outcome,
    *,
    random: Random,
    records: Sequence[Record] = (),
    children: Sequence[NewJob] = (),
    backoff: retry.Backoff | None = None,
) -> Transition:
    """What the holder of the lease asks for at the end of its attempt.

    `backoff` is the task's own policy where its code is at hand (a custom one is not in the row).
    """
    ends = partial(
        Transition, job_id=job.id, fence=job.fence, token=job.lease.token, records=tuple(records)
    )
    match outcome:
        case Succeeded():
            return succeed(job, outcome, records, children)
        case Failed() | Crashed():
            failure, delay = _error(job, outcome, random, backoff)
            fails = partial(ends, error=failure, crash=isinstance(outcome, Crashed))
            if delay is None:
                return fails(trigger=Trigger.FAIL)
            return fails(trigger=Trigger.RETRY, delay=delay)
        case Released():
            return ends(trigger=Trigger.RELEASE, delay=0.0)
        case Snoozed(delay=delay):
            return ends(trigger=Trigger.SNOOZE, delay=delay)
        case Suspended(timeout=timeout, awaits=awaits, signals=signals):
            return ends(
                trigger=Trigger.SUSPEND,
                delay=timeout,
                children=tuple(children),
                awaits=awaits,
                signals=signals,
            )
        case Aborted(reason=reason):
            return ends(trigger=Trigger.ABORT, reason=reason)
        case _:
            assert_never(outcome)


def succeed(
    job: JobRow,
    outcome: Succeeded,
    records: Sequence[Record] = (),
    children: Sequence[NewJob] = (),
) -> Transition:
    """The end of nearly all attempts, so it takes the shortest way."""
    return Transition(
        job_id=job.id,
        fence=job.fence,
        trigger=Trigger.SUCCEED,
        token=job.token,
        result=outcome.result,
        records=tuple(records),
        children=tuple(children),
    )


def _error(
    job: JobRow, outcome: Failed | Crashed, random: Random, backoff: retry.Backoff | None
) -> tuple[Failure, float | None]:
    """What went wrong, and when to try again; None is never."""
    if isinstance(outcome, Crashed):
        return _crash(job, random, outcome.body)
    failure = outcome.failure
    if failure.kind is ErrorKind.TERMINAL or job.retry_count >= job.policy.max_retries:
        return failure, None
    if outcome.delay is not None:
        return failure, outcome.delay
    return failure, retry.delay(backoff or job.policy.backoff, job.retry_count, random)


def _crash(job: JobRow, random: Random, body: bytes | None = None) -> tuple[Failure, float | None]:
    """What the next crash of a job means: its error, and the delay; None at its cap."""
    crashes = job.crash_count + 1
    if crashes >= job.policy.crash_cap:
        return Failure(code=failures.CRASHED, kind=ErrorKind.TERMINAL, body=body), None
    wait = (
        0.0 if crashes == 1 else retry.delay(retry.stored(job.policy.backoff), crashes - 2, random)
    )
    return Failure(code=failures.CRASHED, kind=ErrorKind.RETRYABLE, body=body), wait


def rescue(job: JobRow, *, random: Random) -> Transition:
    """Take back a lease that ran out. The first time at once, then by the job's own backoff."""
    failure, delay = _crash(job, random)
    takes = partial(
        Transition, job_id=job.id, fence=job.fence, token=job.token, error=failure, delay=delay
    )
    return takes(trigger=Trigger.GIVE_UP if delay is None else Trigger.CRASH)


def promote(job: JobRow) -> Transition:
    """Its time came: make it claimable, or end it if it expired before its first start."""
    trigger = Trigger.EXPIRE if job.state is State.QUEUED else Trigger.PROMOTE
    return Transition(job_id=job.id, fence=job.fence, trigger=trigger)


def submit(job_id: UUID) -> Transition:
    return Transition(job_id=job_id, fence=0, trigger=Trigger.SUBMIT)


def sweep(job: JobRow, *, random: Random) -> Transition:
    """What maintenance does about a job that `due` or `expired` named."""
    return rescue(job, random=random) if job.state is State.RUNNING else promote(job)
