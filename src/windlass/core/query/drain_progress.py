"""Progress of draining queues, and the estimate of the remaining time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from windlass.core.job.state import State

DRAIN_STATES = frozenset({State.QUEUED, State.RUNNING, State.RETRYING})
"""States that a drain waits for; a `created` job is not in its queue yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainProgress:
    """Progress of draining queues, as of one poll.

    left: jobs that are queued, running or retrying; a lower bound if `capped`
    peak: the maximum of `left` at any poll
    running: running jobs
    created: jobs that are not queued yet: held, scheduled, waiting for other jobs
    paused: which of the queues are paused
    seconds: seconds since the first poll
    eta: estimated seconds until the queues are empty; None if unknown
    """

    left: int
    peak: int
    running: int
    created: int = 0
    capped: bool = False
    paused: tuple[str, ...] = ()
    seconds: float = 0.0
    eta: float | None = None


def drain_eta(samples: Sequence[tuple[float, int]]) -> float | None:
    """Estimate the remaining seconds from samples of (seconds, left), oldest first."""
    if len(samples) < 2:  # noqa: PLR2004 - a rate needs two samples
        return None
    (start, before), (now, left) = samples[0], samples[-1]
    if left >= before or now <= start:
        return None
    return left * (now - start) / (before - left)
