"""The right to run one attempt, and how it is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from windlass.core.clock import Instant
from windlass.core.decisions.retry import MAX_DELAY
from windlass.core.errors import InvalidArgumentError
from windlass.core.sizes import check_text
from windlass.core.value import pair, value

DEFAULT_LEASE = 30.0


def check_lease(seconds: float) -> None:
    if not 0 < seconds <= MAX_DELAY:
        raise InvalidArgumentError(
            f"lease is {seconds} s; it must be positive and at most 10 years"
        )


@pair
class Lease:
    """Speaks for one attempt: a write made with it applies only while it is still held."""

    job_id: UUID
    fence: int
    token: UUID

    def __hash__(self) -> int:
        # Workers look leases up several times per job: this costs a third of the generated one.
        return hash((self.job_id.int, self.fence))


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One claim call. The claimer makes the token: a repeat with the same token gets the same jobs.

    `lease` is in seconds and overrules the job's own; None leaves the job's own, or the default.
    """

    token: UUID
    worker: str
    queues: Sequence[tuple[str, int]]
    lease: float | None = None

    def __post_init__(self) -> None:
        if self.lease is not None:
            check_lease(self.lease)
        check_text("the worker's name", self.worker)
        for queue, limit in self.queues:
            check_text("a queue's name", queue)
            if limit < 0:
                raise InvalidArgumentError(f"the limit for queue {queue!r} is {limit}")


@value
class Extended:
    """The answer to one extension: None in `lease_until` means stale, stop the task."""

    lease_until: Instant | None
    cancel_requested: bool = False

    @property
    def stale(self) -> bool:
        return self.lease_until is None
