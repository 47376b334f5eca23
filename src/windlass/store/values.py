"""Values of the store contract."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from windlass.core.errors import InvalidArgumentError
from windlass.core.event import Event, Record
from windlass.core.job.lease import Lease

DAY = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """Differences between stores. Tests and callers check these, never the name of a store."""

    durable: bool  # accepted jobs survive crashes and power loss
    fifo: bool  # within a priority, jobs are claimed in the order of queueing
    priority_classes: int | None  # number of distinct priorities; None: all
    atomic_batch: bool  # all items of a call become visible together
    transactional: bool  # can enqueue in the caller's transaction
    store_clock: bool  # instants come from one clock for all processes
    push_wakeups: bool  # `wait` returns on wake-ups, not only by polling
    shared: bool  # several processes may open the same data


@dataclass(frozen=True, slots=True)
class AttemptRecords:
    """Records of one running attempt, with its lease."""

    lease: Lease
    records: Sequence[Record]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Seconds to keep finished jobs, their logs and the rollups; 0 keeps them forever."""

    succeeded: float = 30 * DAY
    canceled: float = 30 * DAY
    failed: float = 90 * DAY
    log: float = 30 * DAY
    rollups: float = 90 * DAY

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not getattr(self, name) >= 0:
                raise InvalidArgumentError(
                    f"retention of {name} is negative; use 0 to keep forever"
                )


@dataclass(frozen=True, slots=True)
class Pruned:
    """Numbers of deleted items."""

    jobs: int = 0
    logs: int = 0
    records: int = 0
    rollups: int = 0


@dataclass(frozen=True, slots=True)
class EventPage:
    """The next events of one job. With `ended`, no more events will follow."""

    events: Sequence[Event]
    ended: bool
