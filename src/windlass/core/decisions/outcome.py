"""Outcomes of attempts, and the transitions that follow from them.

These functions use the row as the worker read it; `decide.transition` uses the current one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias, assert_never
from uuid import UUID

from windlass.core.decisions.transition import Transition
from windlass.core.event import Record
from windlass.core.fast_dataclass import value
from windlass.core.job import failure as failures
from windlass.core.job.failure import ErrorKind, Failure
from windlass.core.job.new_job import NewJob
from windlass.core.job.retry_policy import Backoff, Random, backoff_delay, storable_backoff
from windlass.core.job.row import JobRow
from windlass.core.job.state import Trigger


@value
class Succeeded:
    """The task returned."""

    result: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The task raised an error. `delay` overrides the backoff of the policy (RetryAfter)."""

    failure: Failure
    delay: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Crashed:
    """The child process of the attempt died; counts as a crash, like an expired lease."""

    body: bytes | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """Requeued immediately, not counted: the worker stops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snoozed:
    """The task raised Snooze; not counted."""

    delay: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspended:
    """The job waits without occupying a slot, at most `timeout` seconds; not counted.

    It wakes when all jobs in `awaits` have ended, or at a signal beyond the first `signals` ones.
    """

    timeout: float | None = None
    awaits: tuple[UUID, ...] = ()
    signals: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Aborted:
    """The task raised Cancel, or stopped after a cancel request."""

    reason: str | None = None


Outcome: TypeAlias = Succeeded | Failed | Crashed | Released | Snoozed | Suspended | Aborted


def settle(
    job: JobRow,
    outcome: Outcome,
    *,
    random: Random,
    records: Sequence[Record] = (),
    children: Sequence[NewJob] = (),
    backoff: Backoff | None = None,
) -> Transition:
    """Return the transition that settles an attempt.

    `backoff` is that of the task, if its code is available: a custom one is not in the row.
    """
    transition = partial(
        Transition, job_id=job.id, fence=job.fence, token=job.lease.token, records=tuple(records)
    )
    match outcome:
        case Succeeded():
            return succeed(job, outcome, records, children)
        case Failed() | Crashed():
            failure, delay = _failure(job, outcome, random, backoff)
            trigger = Trigger.FAIL if delay is None else Trigger.RETRY
            crash = isinstance(outcome, Crashed)
            return transition(trigger=trigger, error=failure, delay=delay, crash=crash)
        case Released():
            return transition(trigger=Trigger.RELEASE, delay=0.0)
        case Snoozed(delay=delay):
            return transition(trigger=Trigger.SNOOZE, delay=delay)
        case Suspended(timeout=timeout, awaits=awaits, signals=signals):
            return transition(
                trigger=Trigger.SUSPEND,
                delay=timeout,
                children=tuple(children),
                awaits=awaits,
                signals=signals,
            )
        case Aborted(reason=reason):
            return transition(trigger=Trigger.ABORT, reason=reason)
        case _:
            assert_never(outcome)


def succeed(
    job: JobRow,
    outcome: Succeeded,
    records: Sequence[Record] = (),
    children: Sequence[NewJob] = (),
) -> Transition:
    """Return the transition of a success. A fast path: nearly all attempts end so."""
    return Transition(
        job_id=job.id,
        fence=job.fence,
        trigger=Trigger.SUCCEED,
        token=job.token,
        result=outcome.result,
        records=tuple(records),
        children=tuple(children),
    )


def _failure(
    job: JobRow, outcome: Failed | Crashed, random: Random, backoff: Backoff | None
) -> tuple[Failure, float | None]:
    """Return the failure and the delay of the next attempt; None: no retry."""
    if isinstance(outcome, Crashed):
        return crash_failure(job, random, outcome.body)
    failure = outcome.failure
    if failure.kind is ErrorKind.TERMINAL or job.retry_count >= job.policy.max_retries:
        return failure, None
    if outcome.delay is not None:
        return failure, outcome.delay
    return failure, backoff_delay(backoff or job.policy.backoff, job.retry_count, random)


def crash_failure(
    job: JobRow, random: Random, body: bytes | None = None
) -> tuple[Failure, float | None]:
    """Return the failure and the delay after another crash; None at the crash cap."""
    crashes = job.crash_count + 1
    if crashes >= job.policy.crash_cap:
        return Failure(code=failures.CRASHED, kind=ErrorKind.TERMINAL, body=body), None
    backoff = storable_backoff(job.policy.backoff)
    wait = 0.0 if crashes == 1 else backoff_delay(backoff, crashes - 2, random)
    return Failure(code=failures.CRASHED, kind=ErrorKind.RETRYABLE, body=body), wait
