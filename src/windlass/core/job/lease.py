"""Leases of attempts, and claims of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from windlass.core.clock import Instant
from windlass.core.errors import InvalidArgumentError
from windlass.core.fast_dataclass import positional_value, value
from windlass.core.job.retry_policy import MAX_DELAY
from windlass.core.size_limits import check_text

DEFAULT_LEASE = 30.0


def check_lease(seconds: float) -> None:
    if not 0 < seconds <= MAX_DELAY:
        raise InvalidArgumentError(
            f"lease is {seconds} s; it must be positive and at most 10 years"
        )


@positional_value
class Lease:
    """Lease of one attempt. A write with it applies only while the attempt still holds it."""

    job_id: UUID
    fence: int
    token: UUID

    def __hash__(self) -> int:
        # Workers hash leases several times per job: this costs a third of the generated hash.
        return hash((self.job_id.int, self.fence))


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One claim call. The caller makes the token: a repeat with it returns the same jobs.

    `queues` are (name, maximum number of jobs) pairs. `lease`, in seconds, overrides that of the
    job; None uses that of the job, or the default.
    """

    token: UUID
    worker: str
    queues: Sequence[tuple[str, int]]
    lease: float | None = None

    def __post_init__(self) -> None:
        if self.lease is not None:
            check_lease(self.lease)
        check_text("the worker name", self.worker)
        for queue, limit in self.queues:
            check_text("a queue name", queue)
            if limit < 0:
                raise InvalidArgumentError(
                    f"the limit for queue {queue!r} is {limit}; it must be 0 or more"
                )


@value
class ExtendResult:
    """Result of one extension. None in `lease_until`: the lease was lost, stop the task."""

    lease_until: Instant | None
    cancel_requested: bool = False

    @property
    def stale(self) -> bool:
        return self.lease_until is None
