"""Predicates for maintenance, on a row and the store's time."""

from __future__ import annotations

from windlass.core.clock import SECOND, Instant
from windlass.core.job.row import LifecycleRow
from windlass.core.job.state import State

_TIMED = frozenset({State.CREATED, State.RETRYING})
_EXPIRING = frozenset({State.CREATED, State.QUEUED})


def is_expired(row: LifecycleRow, now: Instant) -> bool:
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
