"""What maintenance has to see to, as predicates on a row and the store's time."""

from __future__ import annotations

from windlass.core.clock import SECOND, Instant
from windlass.core.job.row import Standing
from windlass.core.job.state import State

_TIMED = frozenset({State.CREATED, State.RETRYING})
_EXPIRING = frozenset({State.CREATED, State.QUEUED})


def too_late(row: Standing, now: Instant) -> bool:
    """Whether it may no longer start for the first time."""
    return row.expires_at is not None and row.expires_at <= now and row.first_started_at is None


def due_since(row: Standing, now: Instant) -> Instant | None:
    """Since when a waiting job wants to be promoted or expired; None if it can go on waiting."""
    since: list[Instant] = []
    # One that is suspended waits for others until its time, one that never ran for both.
    blocked = row.held or (row.waiting_for and row.state is State.CREATED)
    if row.state in _TIMED and not blocked and row.due_at is not None:
        since.append(row.due_at)
    if row.state in _EXPIRING and row.first_started_at is None and row.expires_at is not None:
        since.append(row.expires_at)
    return min((instant for instant in since if instant <= now), default=None)


def lease_lost(row: Standing, now: Instant) -> bool:
    return row.state is State.RUNNING and row.lease_until is not None and row.lease_until <= now


def kept_until(now: Instant, seconds: float) -> Instant | None:
    """What ended at or before this instant is past keeping; None when it is kept for good."""
    return now - round(seconds * SECOND) if seconds > 0 else None
