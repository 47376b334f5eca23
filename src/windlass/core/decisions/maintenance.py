"""Maintenance of jobs: which are due, expired or abandoned, and the transitions that follow."""

from __future__ import annotations

from windlass.core.clock import SECOND, Instant
from windlass.core.decisions import outcome
from windlass.core.decisions.transition import Transition
from windlass.core.job.retry_policy import Random
from windlass.core.job.row import JobRow, LifecycleRow
from windlass.core.job.state import State, Trigger

_TIMED = frozenset({State.CREATED, State.RETRYING})
_EXPIRING = frozenset({State.CREATED, State.QUEUED})


def expired(row: LifecycleRow, now: Instant) -> bool:
    """Whether its expiry passed before its first start."""
    return row.expires_at is not None and row.expires_at <= now and row.first_started_at is None


def due_since(row: LifecycleRow, now: Instant) -> Instant | None:
    """Return since when a job is due for promotion or expiry; None if it is not."""
    since: list[Instant] = []
    # A suspended job wakes at its time, even with open parents; a new job needs both.
    blocked = row.held or (row.waiting_for and row.state is State.CREATED)
    if row.state in _TIMED and not blocked and row.due_at is not None:
        since.append(row.due_at)
    if row.state in _EXPIRING and row.first_started_at is None and row.expires_at is not None:
        since.append(row.expires_at)
    return min((instant for instant in since if instant <= now), default=None)


def lease_expired(row: LifecycleRow, now: Instant) -> bool:
    """Whether it runs and its lease has expired."""
    return row.state is State.RUNNING and row.lease_until is not None and row.lease_until <= now


def retention_cutoff(now: Instant, seconds: float) -> Instant | None:
    """Return the instant up to which finished jobs are pruned; None: keep them forever."""
    return now - round(seconds * SECOND) if seconds > 0 else None


def rescue(job: JobRow, *, random: Random) -> Transition:
    """Rescue a job whose lease expired: the first time immediately, then by the job's backoff."""
    failure, delay = outcome.crash_failure(job, random)
    return Transition(
        job_id=job.id,
        fence=job.fence,
        trigger=Trigger.GIVE_UP if delay is None else Trigger.CRASH,
        token=job.token,
        delay=delay,
        error=failure,
    )


def promote(job: JobRow) -> Transition:
    """Return the transition of a due job: queue it, or expire it before its first start."""
    trigger = Trigger.EXPIRE if job.state is State.QUEUED else Trigger.PROMOTE
    return Transition(job_id=job.id, fence=job.fence, trigger=trigger)


def sweep(job: JobRow, *, random: Random) -> Transition:
    """Return the maintenance transition of a job from `Store.due`."""
    return rescue(job, random=random) if job.state is State.RUNNING else promote(job)
