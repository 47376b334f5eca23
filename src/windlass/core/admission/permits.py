"""Permits of limited jobs, and the capacity of a gate computed from them.

The job's row decides whether a permit is in use: the job must be queued, running, or waiting at a
later gate. So no slot can leak when a process dies.
"""

from __future__ import annotations

from collections.abc import Sequence

from windlass.core.admission.limit import Limit
from windlass.core.clock import Instant
from windlass.core.fast_dataclass import positional_value
from windlass.core.job.row import LifecycleRow
from windlass.core.job.state import State

UNLIMITED = 2**62


@positional_value
class Permit:
    """Admission of one attempt, identified by its fence, at one gate."""

    fence: int
    at: Instant
    started_at: Instant | None = None


def next_permit(row: LifecycleRow, now: Instant) -> Permit:
    """Return a permit for the next attempt of a job."""
    return Permit(row.fence + 1, now)


def in_use(permit: Permit, row: LifecycleRow | None) -> bool:
    """Whether the permit uses a slot: its attempt runs or can still start."""
    if row is None or row.fence > permit.fence:
        return False
    if row.fence == permit.fence:
        return row.state is State.RUNNING
    return row.state is State.QUEUED or row.gate is not None


def with_start(permit: Permit, row: LifecycleRow | None) -> Permit:
    """Set the start of its attempt, once known; of a deleted job, the earliest possible one."""
    if permit.started_at is not None:
        return permit
    if row is None:
        return Permit(permit.fence, permit.at, permit.at)
    if row.fence == permit.fence and row.started_at is not None:
        return Permit(permit.fence, permit.at, row.started_at)
    return permit


@positional_value
class Capacity:
    """How many jobs a gate can admit now.

    `next_check_at` is when starts of the rate limit expire; None if only the end of a job helps.
    """

    free: int
    next_check_at: Instant | None
    kept: Sequence[bool]  # for each permit, whether it still counts


def capacity(limit: Limit | None, permits: Sequence[tuple[Permit, bool]], now: Instant) -> Capacity:
    """Compute the capacity of a gate from all its permits, each with whether it is in use.

    Permits are also issued while the limit is removed: a limit that is set again counts all
    running jobs.
    """
    next_check_at, started = None, 0
    kept = [used for _, used in permits]
    if limit is not None and limit.starts is not None:
        until = [_counts_until(permit, used, limit.length, now) for permit, used in permits]
        kept = [used or end > now for (_, used), end in zip(permits, until, strict=True)]
        counted = sorted(end for end in until if end > now)
        started = len(counted)
        if started >= limit.starts:
            next_check_at = counted[started - limit.starts]
    used_slots = sum(used for _, used in permits)
    return Capacity(free_slots(limit, used_slots, started), next_check_at, kept)


def free_slots(limit: Limit | None, used_slots: int, started: int) -> int:
    """Return how many jobs can be admitted, given the used slots and the starts that count."""
    free = UNLIMITED
    if limit is not None and limit.starts is not None:
        free = limit.starts - started
    if limit is not None and limit.concurrency is not None:
        free = min(free, limit.concurrency - used_slots)
    return max(free, 0)


def _counts_until(permit: Permit, used: bool, length: int, now: Instant) -> Instant:
    """Return the end of the window in which its start counts.

    An attempt that can still start counts from now on.
    """
    if permit.started_at is not None:
        return permit.started_at + length
    return now + length if used else now
