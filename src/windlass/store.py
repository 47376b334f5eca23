"""The contract of stores: the methods, and the rules that all of them follow.

1. Results are in input order, one per input. Empty input returns an empty result without I/O.
2. An invalid item never fails the other items. Only infrastructure errors raise (`StoreError`);
   the outcome is then unknown.
3. Every write can be repeated, and a repeat returns the same result. The caller makes ids and
   tokens, records are numbered per fence, and the row stores its last trigger. Two exceptions,
   both safe: a repeated delete or prune finds nothing; if items of one call conflict with each
   other, by debounce or a shared key, a repeat sees the changes of the first call.
4. A fenced write without its lease returns `stale`, an impossible one `conflict`; neither raises.
5. All instants come from the store's clock. Transitions carry delays, the store computes instants.
6. Any await can be cancelled; the write has then either happened completely or not at all.
7. `wait` is only a hint; callers also poll.
8. Signatures are independent of the engine. Extra features are methods of the concrete class.
9. Stores differ only in their `Capabilities`.

A store decides nothing about jobs: it calls `windlass.core` under the job's lock and writes the
decision. `stores.memory` is the executable specification, `testing.conformance` the test suite.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, Self, runtime_checkable
from uuid import UUID

from windlass.core.admission.gates import GateStats
from windlass.core.clock import Instant
from windlass.core.decisions.enqueue import EnqueueResult
from windlass.core.decisions.transition import (
    ApplyResult,
    CancelRequest,
    Checkpoint,
    SignalRequest,
    Transition,
)
from windlass.core.diagnosis import Diagnosis
from windlass.core.errors import InvalidArgumentError
from windlass.core.event import Event, Record
from windlass.core.job.attempt import Attempt
from windlass.core.job.dependency import Edges
from windlass.core.job.failure import Failures
from windlass.core.job.flow_stats import FlowPage, FlowStats
from windlass.core.job.lease import Claim, ExtendResult, Lease
from windlass.core.job.new_job import NewJob
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.core.query.job_query import Count, JobQuery, Page
from windlass.core.versioned_record import Entry, Put, PutResult

DAY = 86_400.0
COUNT_CAP = 10_000
FLOW_RANGE = 1_000  # newest jobs of each flow that a list of flows counts
COUNT_RANGE = 100_000  # newest candidate jobs that `count` reads


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


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStats:
    """Depth of one queue by state. States in `capped` were counted only up to COUNT_CAP."""

    counts: Mapping[State, int] = field(default_factory=dict)
    capped: frozenset[State] = frozenset()
    oldest_queued_at: Instant | None = None
    paused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollup:
    """Attempts of a queue, task and outcome that were settled in one minute; times are sums."""

    minute: Instant
    queue: str
    task: str
    outcome: State
    count: int
    wait: int
    run: int


@dataclass(frozen=True, slots=True)
class EventPage:
    """The next events of one job. With `ended`, no more events will follow."""

    events: Sequence[Event]
    ended: bool


class Store(ABC):
    """A handle of a store. It belongs to the event loop that opened it."""

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """Return how it differs from other stores."""

    # -- the handle

    @abstractmethod
    async def migrate(self) -> Sequence[str]:
        """Upgrade the schema under a lock; return the applied steps. Can be repeated."""

    @abstractmethod
    async def ping(self) -> Instant:
        """Return the store's time; raises a StoreError if it cannot be reached."""

    @abstractmethod
    def twin(self) -> Store:
        """Return an independent handle of the same data, for another event loop or thread."""

    @abstractmethod
    async def close(self) -> None:
        """Release all resources, after calls in progress. Can be repeated."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    # -- enqueuing

    @abstractmethod
    async def enqueue(self, jobs: Sequence[NewJob], *, atomic: bool = False) -> list[EnqueueResult]:
        """Store new jobs. When this returns, CREATED jobs are durable.

        Items are processed in order: a later one sees the keys of an earlier one, and may depend on
        it. With `atomic`, all jobs are refused with the same error if one cannot be stored.
        """

    # -- running

    @abstractmethod
    async def claim(self, claim: Claim) -> list[JobRow]:
        """Claim queued jobs: highest priority first, then by position; up to a limit per queue.

        Never claims a job twice, an expired job, or a job of a paused queue. Increases the fence
        by 1. A repeat with the same token returns the jobs that still run under it.
        """

    @abstractmethod
    async def extend(self, leases: Sequence[Lease], seconds: float) -> list[ExtendResult]:
        """Extend leases to `seconds` from now; return whether a cancel was requested."""

    @abstractmethod
    async def apply(self, transitions: Sequence[Transition]) -> list[ApplyResult]:
        """Apply transitions: settle, release, rescue, promote, submit and others.

        For each item, calls `core.decisions.decide` under the job's lock. Writes its values, log
        rows, checkpoints, children and rollup atomically.
        """

    @abstractmethod
    async def record(self, attempt_records: Sequence[AttemptRecords]) -> list[ApplyResult]:
        """Store records of running attempts, fenced; drops repeated record numbers."""

    @abstractmethod
    async def wait(self, queues: Sequence[str], timeout: float) -> bool:
        """Return when jobs may have become claimable since the last `claim`, or at the timeout."""

    # -- maintenance

    @abstractmethod
    async def due(self, limit: int) -> list[JobRow]:
        """Return waiting jobs that are due or expired, earliest first."""

    @abstractmethod
    async def expired(self, limit: int) -> list[JobRow]:
        """Return running jobs whose lease expired, earliest expiry first."""

    @abstractmethod
    async def prune(self, retention: Retention, limit: int) -> Pruned:
        """Delete data past its retention: up to `limit` jobs, and the logs of as many jobs.

        Also deletes expired records, and old counts per minute (rollups).
        """

    # -- operators

    @abstractmethod
    async def cancel(self, requests: Sequence[CancelRequest]) -> list[ApplyResult]:
        """Cancel jobs. A waiting job ends immediately; a running job is asked to stop.

        The result is APPLIED with state `canceled`, or `running` if its worker must stop it first.
        """

    @abstractmethod
    async def signal(self, signals: Sequence[SignalRequest]) -> list[ApplyResult]:
        """Send signals to jobs. A repeat is APPLIED; the first value is kept."""

    @abstractmethod
    async def delete(self, ids: Sequence[UUID], owner: str | None = None) -> list[ApplyResult]:
        """Delete finished jobs with their data. An active job is a conflict."""

    @abstractmethod
    async def pause(self, queues: Sequence[str], *, paused: bool) -> None:
        """Pause or resume these queues. Running jobs are not affected."""

    # -- reading

    @abstractmethod
    async def get(self, ids: Sequence[UUID], owner: str | None = None) -> list[JobRow | None]:
        """Return the jobs; None for an unknown one, or one of another owner."""

    @abstractmethod
    async def find(self, query: JobQuery) -> Page:
        """Return a page of jobs, newest first. New and deleted jobs never shift other jobs."""

    @abstractmethod
    async def count(self, query: JobQuery) -> Count:
        """Count the matching jobs up to COUNT_CAP; ignores limit and cursor.

        It may read only the newest COUNT_RANGE jobs; the result is then capped, too.
        """

    @abstractmethod
    async def stats(self) -> Mapping[str, QueueStats]:
        """Return the depth by queue and state, exact up to COUNT_CAP."""

    @abstractmethod
    async def failures(
        self, since: Instant, limit: int, owner: str | None = None, team: str | None = None
    ) -> Failures:
        """Return jobs that failed since then.

        Reads the newest `limit` of them, and returns those of the owner and team.
        """

    @abstractmethod
    async def gates(self, names: Sequence[str]) -> list[GateStats]:
        """Return the statistics of gates; an unused gate is empty. Admits no jobs.

        A job uses a slot if its permit is in use (`permits.in_use`); holders are sorted by the
        instant of that permit, then by id. `next_check_at` is None if no job waits, and in the
        past if the limit was changed.
        """

    @abstractmethod
    async def rollups(self, since: Instant, until: Instant) -> list[Rollup]:
        """Return the rollups per minute from `since` (inclusive) to `until` (exclusive)."""

    @abstractmethod
    async def events(self, job_id: UUID, after: int = 0, limit: int = 1000) -> EventPage | None:
        """Return the next events above `after`, without gaps; None for an unknown job.

        A returned event never changes. If the log was pruned past `after`, RESYNC is the first.
        """

    @abstractmethod
    def tail(self, job_id: UUID, after: int = 0) -> AsyncIterator[Event]:
        """Yield all events above `after`, then live ones, until the final event."""

    @abstractmethod
    async def attempts(self, job_id: UUID) -> list[Attempt] | None:
        """Return all attempts, oldest first; None for an unknown job."""

    @abstractmethod
    async def checkpoints(self, ids: Sequence[UUID]) -> list[Mapping[str, Checkpoint]]:
        """Return the checkpoints of each job, by step."""

    # -- flows

    @abstractmethod
    async def edges(self, ids: Sequence[UUID], limit: int | None = None) -> list[Edges]:
        """Return the parents and children of each job, also finished ones.

        `limit` bounds the number of each: there may be 100,000.
        """

    @abstractmethod
    async def flows(
        self, ids: Sequence[UUID], owner: str | None = None, team: str | None = None
    ) -> list[FlowStats | None]:
        """Return the statistics of flows, of jobs of an owner and team; None without such jobs."""

    @abstractmethod
    async def newest_flows(
        self,
        limit: int,
        before: UUID | None = None,
        owner: str | None = None,
        team: str | None = None,
    ) -> FlowPage:
        """Return a page of flows with ids below `before`, newest first; ids increase with time.

        Reads `limit` flows, and of each the newest FLOW_RANGE jobs. A flow without jobs of the
        owner and team among these is omitted.
        """

    # -- records

    @abstractmethod
    async def put_records(self, puts: Sequence[Put]) -> list[PutResult]:
        """Write records, by compare-and-set if they have an expected version."""

    @abstractmethod
    async def get_records(self, kind: str, keys: Sequence[str]) -> list[Entry | None]:
        """Return the records; None for a missing one."""

    @abstractmethod
    async def list_records(self, kind: str, after: str = "", limit: int = 1000) -> list[Entry]:
        """Return records of a kind in the order of their keys, after the key `after`."""

    @abstractmethod
    async def delete_records(self, kind: str, keys: Sequence[str]) -> None:
        """Delete records; ignores missing ones."""


@runtime_checkable
class ServerStore(Protocol):
    """A store behind a server, which does what the caller's API key may not do directly."""

    async def why(self, job_id: UUID) -> Diagnosis:
        """Diagnose a job; raises NotFoundError if the caller has no access to it."""

    async def rotate(self) -> None:
        """Make the server sign task tokens with a new key, which never leaves the server."""
