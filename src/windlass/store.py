"""The contract that every store keeps: the verbs, what they promise, and the laws.

1. Results come in input order, one per input. Empty in, empty out, no I/O.
2. One bad item never fails its neighbours. Only infrastructure raises (`StoreError`), and then the
   outcome is unknown, so
3. every write may be repeated, and a repeat is answered as the first call was: ids and tokens are
   made by the caller, records are numbered per fence, the row remembers what last happened to it.
   (Not alike, though as harmless: deleting and pruning find nothing the second time, and in a call
   whose items meet, by debounce or a shared key, the later one has changed what the first meets.)
4. A fenced write that lost its lease is answered `stale`, an impossible one `conflict`. Both are
   answers, not exceptions.
5. Time has one door: the store's clock. Transitions carry delays, the store makes instants.
6. Any await may be cancelled; the state is then before or after, never between.
7. `wait` is a hint; polling remains.
8. Nothing of the engine shows in a signature. Extra powers hang on the concrete class.
9. Stores differ only as `Capabilities` says.

A store decides nothing about jobs: it calls `windlass.core` under the job's lock and writes the
answer. The executable specification is `stores.memory`; the proof is `testing.conformance`.
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
from windlass.core.decisions.enqueue import Enqueued
from windlass.core.decisions.transition import Answer, CancelRequest, Checkpoint, Signal, Transition
from windlass.core.errors import InvalidArgumentError
from windlass.core.event import Event, Record
from windlass.core.job.attempt import Attempt
from windlass.core.job.dependency import Edges, FlowPage, FlowStats
from windlass.core.job.failure import Failures
from windlass.core.job.lease import Claim, Extended, Lease
from windlass.core.job.row import JobRow, NewJob
from windlass.core.job.state import State
from windlass.core.query.diagnosis import Why
from windlass.core.query.job_query import Count, Page, Query
from windlass.core.records import Entry, Put, PutAnswer

DAY = 86_400.0
COUNT_CAP = 10_000
FLOW_RANGE = 1_000  # jobs of each flow, the newest, that a list of flows counts
COUNT_RANGE = 100_000  # jobs, the newest of those in question, among which `count` counts


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """How a store may differ. Tests and callers branch on these, never on a store's name."""

    durable: bool  # accepted jobs survive the process and the power
    fifo: bool  # within a priority, the order of queueing is the order of claiming
    priority_classes: int | None  # how many priorities it tells apart; None: all
    atomic_batch: bool  # a call's items become visible together
    transactional: bool  # can enqueue inside the caller's own transaction
    store_clock: bool  # instants come from one clock for all processes
    push_wakeups: bool  # `wait` returns on news, not only by polling
    shared: bool  # several processes may open the same data


@dataclass(frozen=True, slots=True)
class Saying:
    """What one running attempt says, spoken with its lease."""

    lease: Lease
    records: Sequence[Record]


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """Seconds to keep finished jobs, their logs and the counts per minute; 0 is for good."""

    succeeded: float = 30 * DAY
    canceled: float = 30 * DAY
    failed: float = 90 * DAY
    log: float = 30 * DAY
    rollups: float = 90 * DAY

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if not getattr(self, name) >= 0:
                raise InvalidArgumentError(f"retention of {name} is negative; 0 keeps for good")


@dataclass(frozen=True, slots=True)
class Pruned:
    """How much was deleted."""

    jobs: int = 0
    logs: int = 0
    records: int = 0
    rollups: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStats:
    """Depth by state of one queue. `capped` names the states counted only up to COUNT_CAP."""

    counts: Mapping[State, int] = field(default_factory=dict)
    capped: frozenset[State] = frozenset()
    oldest_queued_at: Instant | None = None
    paused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollup:
    """What one minute settled: attempts of this queue and task that ended so; times are sums."""

    minute: Instant
    queue: str
    task: str
    outcome: State
    count: int
    wait: int
    run: int


@dataclass(frozen=True, slots=True)
class EventPage:
    """The next events of one job. When `ended`, nothing will ever follow them."""

    events: Sequence[Event]
    ended: bool


class Store(ABC):
    """A handle on stored jobs. It belongs to the event loop that opened it."""

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """How it differs from other stores."""

    # -- the handle

    @abstractmethod
    async def migrate(self) -> Sequence[str]:
        """Bring the schema up to date, under a lock; answer what was done. Harmless to repeat."""

    @abstractmethod
    async def ping(self) -> Instant:
        """The store's time, or a StoreError that says what is wrong."""

    @abstractmethod
    def twin(self) -> Store:
        """An independent handle on the same data, for another event loop or thread."""

    @abstractmethod
    async def close(self) -> None:
        """Let go of everything. Calls under way are finished first; repeating is harmless."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    # -- putting in

    @abstractmethod
    async def enqueue(self, jobs: Sequence[NewJob], *, together: bool = False) -> list[Enqueued]:
        """Store new jobs. When this returns, what is answered CREATED is as durable as can be.

        Items act in order, so that a later one meets the keys of an earlier one, and may depend on
        it. With `together`, if any of them cannot be, all are refused, for the same reason.
        """

    # -- running

    @abstractmethod
    async def claim(self, claim: Claim) -> list[JobRow]:
        """Take queued jobs: highest priority first, then by position; per queue up to its limit.

        Never hands out a job twice, one past its `expires_at`, or one of a paused queue. Each job
        gets fence + 1. A repeat with the same token answers the jobs still running under it.
        """

    @abstractmethod
    async def extend(self, leases: Sequence[Lease], seconds: float) -> list[Extended]:
        """Lengthen leases to `seconds` from now; tell whether a cancel was asked for."""

    @abstractmethod
    async def apply(self, transitions: Sequence[Transition]) -> list[Answer]:
        """The one write door for settle, release, rescue, promote, submit and the rest.

        Each item: `core.decide` under the job's lock; its values, log rows, checkpoints, children
        and rollup in one write, or none of them.
        """

    @abstractmethod
    async def record(self, sayings: Sequence[Saying]) -> list[Answer]:
        """Store what running attempts say, fenced; a record number seen before is dropped."""

    @abstractmethod
    async def wait(self, queues: Sequence[str], timeout: float) -> bool:
        """Return when something may have become claimable since the last `claim`, or at timeout."""

    # -- maintenance: reads that become `apply`, and deletion

    @abstractmethod
    async def due(self, limit: int) -> list[JobRow]:
        """Waiting jobs whose time came or whose expiry passed, longest due first."""

    @abstractmethod
    async def expired(self, limit: int) -> list[JobRow]:
        """Running jobs whose lease ran out, longest first."""

    @abstractmethod
    async def prune(self, retention: Retention, limit: int) -> Pruned:
        """Delete what is past keeping: up to `limit` finished jobs, and as many jobs' logs."""

    # -- operators

    @abstractmethod
    async def cancel(self, requests: Sequence[CancelRequest]) -> list[Answer]:
        """Ask for cancels. APPLIED in state `canceled`, or `running`: recorded, it will win."""

    @abstractmethod
    async def signal(self, signals: Sequence[Signal]) -> list[Answer]:
        """Give jobs what they wait for, or will. A repeat is APPLIED; the first value stays."""

    @abstractmethod
    async def delete(self, ids: Sequence[UUID], owner: str | None = None) -> list[Answer]:
        """Delete finished jobs with all they left. An active one is a conflict."""

    @abstractmethod
    async def pause(self, queues: Sequence[str], *, paused: bool) -> None:
        """Stop (or go on) handing out jobs of these queues. Running jobs are left alone."""

    # -- reading

    @abstractmethod
    async def get(self, ids: Sequence[UUID], owner: str | None = None) -> list[JobRow | None]:
        """The jobs, None for one that is unknown or another owner's."""

    @abstractmethod
    async def find(self, query: Query) -> Page:
        """Jobs newest first, in pages. Jobs that come or go never shift or repeat the others."""

    @abstractmethod
    async def count(self, query: Query) -> Count:
        """How many jobs match, whatever its limit and cursor: up to COUNT_CAP of them.

        It may look at no more than the newest COUNT_RANGE jobs, and is then capped, too.
        """

    @abstractmethod
    async def stats(self) -> Mapping[str, QueueStats]:
        """Depth by queue and state; exact up to COUNT_CAP."""

    @abstractmethod
    async def failures(
        self, since: Instant, limit: int, owner: str | None = None, team: str | None = None
    ) -> Failures:
        """What failed at `since` or later: those of an owner and a team among the last `limit`."""

    @abstractmethod
    async def gates(self, names: Sequence[str]) -> list[GateStats]:
        """Each gate as it stands; one that nobody came to is empty. To look lets nobody in.

        A job holds it if its pass does, by `core.gate.holds`; holders are named by the instant of
        that pass, then by id. `look_at` is None if nobody waits, and past if the limit was changed.
        """

    @abstractmethod
    async def rollups(self, since: Instant, until: Instant) -> list[Rollup]:
        """What was settled, per minute from `since` until before `until`."""

    @abstractmethod
    async def events(self, job_id: UUID, after: int = 0, limit: int = 1000) -> EventPage | None:
        """The next events above `after`, dense; None for an unknown job.

        An event once answered never changes. If the log was pruned past `after`, a RESYNC comes
        first.
        """

    @abstractmethod
    def tail(self, job_id: UUID, after: int = 0) -> AsyncIterator[Event]:
        """All events above `after`, then live ones as they come, until the final one."""

    @abstractmethod
    async def attempts(self, job_id: UUID) -> list[Attempt] | None:
        """Every attempt, oldest first; None for an unknown job."""

    @abstractmethod
    async def checkpoints(self, ids: Sequence[UUID]) -> list[Mapping[str, Checkpoint]]:
        """The recorded step results of each job, by step."""

    # -- jobs that depend on jobs

    @abstractmethod
    async def edges(self, ids: Sequence[UUID], most: int | None = None) -> list[Edges]:
        """Whom each job waits or waited for, and who waits or waited for it.

        Of either at most so many, the first, if `most` is given: there may be 100,000.
        """

    @abstractmethod
    async def flows(
        self, ids: Sequence[UUID], owner: str | None = None, team: str | None = None
    ) -> list[FlowStats | None]:
        """Each flow as a whole, or what it has of an owner and a team; None if that is nothing."""

    @abstractmethod
    async def newest_flows(
        self,
        limit: int,
        before: UUID | None = None,
        owner: str | None = None,
        team: str | None = None,
    ) -> FlowPage:
        """A page of flows by their ids, which rise with time: from below `before`, newest first.

        It looks at `limit` flows, at the newest FLOW_RANGE jobs of each, and there at those of an
        owner and a team: a flow that has none of these is left out.
        """

    # -- small data

    @abstractmethod
    async def put_records(self, puts: Sequence[Put]) -> list[PutAnswer]:
        """Write records, each by compare-and-set if it names a version."""

    @abstractmethod
    async def get_records(self, kind: str, keys: Sequence[str]) -> list[Entry | None]:
        """The records, None for one that is not there."""

    @abstractmethod
    async def list_records(self, kind: str, after: str = "", limit: int = 1000) -> list[Entry]:
        """Records of a kind in the order of their keys, from beyond `after`."""

    @abstractmethod
    async def delete_records(self, kind: str, keys: Sequence[str]) -> None:
        """Remove records; one that is not there is already removed."""


@runtime_checkable
class Served(Protocol):
    """A store behind a server, which answers for it what the caller's key may not read itself."""

    async def why(self, job_id: UUID) -> Why:
        """Why a job is not running; raises NotFoundError for one that the caller does not see."""

    async def rotate(self) -> None:
        """Have the server sign task tokens with a new key, which nobody else gets to see."""
