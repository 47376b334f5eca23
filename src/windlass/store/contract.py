"""The contract of stores: the methods, and the rules that all of them follow.

1. Results are in input order, one per input. Empty input returns an empty result without I/O.
2. An invalid item never fails the other items. Only infrastructure errors raise (`StoreError`);
   the outcome is then unknown.
3. Every write can be repeated, and a repeat returns the same result. The caller makes ids and
   tokens, records are numbered per fence, and the row stores its last trigger. Two exceptions,
   both safe: a repeated delete or prune finds nothing; if items of one call conflict with each
   other, by debounce, a key or the job, a repeat sees the changes of the first call.
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
from types import TracebackType
from typing import Protocol, Self, runtime_checkable
from uuid import UUID

from windlass.core.clock import Instant
from windlass.core.decisions.enqueue import EnqueueResult
from windlass.core.decisions.transition import ApplyRequest, ApplyResult, Checkpoint
from windlass.core.diagnosis import Diagnosis
from windlass.core.event import Event
from windlass.core.job.dependency import Edges
from windlass.core.job.lease import Claim, ExtendResult, Lease
from windlass.core.job.new_job import NewJob
from windlass.core.job.row import JobRow
from windlass.core.query.job_query import JobQuery, Page
from windlass.core.versioned_record import Entry, Put, PutResult
from windlass.store.insights import StoreInsights
from windlass.store.values import AttemptRecords, Capabilities, EventPage, Pruned, Retention


class Store(ABC):
    """A handle of a store. It belongs to the event loop that opened it."""

    @property
    @abstractmethod
    def capabilities(self) -> Capabilities:
        """Return how it differs from other stores."""

    @property
    @abstractmethod
    def insights(self) -> StoreInsights:
        """Return the reads that answer questions of people."""

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

        Never claims a job twice, an expired job, or a job of a paused queue: one with a record of
        kind PAUSED, under its name. Increases the fence by 1. A repeat with the same token returns
        the jobs that still run under it.
        """

    @abstractmethod
    async def extend(self, leases: Sequence[Lease], seconds: float) -> list[ExtendResult]:
        """Extend leases to `seconds` from now; return whether a cancel was requested."""

    @abstractmethod
    async def apply(self, requests: Sequence[ApplyRequest]) -> list[ApplyResult]:
        """Apply requests to change jobs, in order: transitions, cancels and signals, also mixed.

        For each item, calls `core.decisions.decide` under the job's lock. Writes its values, log
        rows, checkpoints, children and rollup atomically. A cancel ends a waiting job immediately.
        The result for a running job is APPLIED with state `running`: its worker must stop it
        first. Of signals with one name, the first value is kept; a repeat is APPLIED. A job of
        another owner than that of the request is MISSING.
        """

    @abstractmethod
    async def record(self, attempt_records: Sequence[AttemptRecords]) -> list[ApplyResult]:
        """Store records of running attempts, fenced; drops repeated record numbers."""

    @abstractmethod
    async def wait(self, queues: Sequence[str], timeout: float) -> bool:
        """Return when jobs may have become claimable since the last `claim`, or at the timeout.

        Also the deletion of a PAUSED record makes jobs claimable.
        """

    # -- maintenance

    @abstractmethod
    async def due(self, limit: int) -> list[JobRow]:
        """Return jobs that need a maintenance transition: `core.decisions.maintenance.sweep`.

        First running jobs whose lease expired, then waiting jobs that are due or expired, each
        earliest first. The limit is for each of the two kinds, so none delays the other.
        """

    @abstractmethod
    async def prune(self, retention: Retention, limit: int) -> Pruned:
        """Delete data past its retention: up to `limit` jobs, and the logs of as many jobs.

        Also deletes expired records, and old counts per minute (rollups).
        """

    @abstractmethod
    async def delete(self, ids: Sequence[UUID], owner: str | None = None) -> list[ApplyResult]:
        """Delete finished jobs with their data. An active job is a conflict."""

    # -- reading

    @abstractmethod
    async def get(self, ids: Sequence[UUID], owner: str | None = None) -> list[JobRow | None]:
        """Return the jobs; None for an unknown one, or one of another owner."""

    @abstractmethod
    async def find(self, query: JobQuery) -> Page:
        """Return a page of jobs, newest first. New and deleted jobs never shift other jobs."""

    @abstractmethod
    async def events(self, job_id: UUID, after: int = 0, limit: int = 1000) -> EventPage | None:
        """Return the next events above `after`, without gaps; None for an unknown job.

        A returned event never changes. If the log was pruned past `after`, RESYNC is the first.
        """

    @abstractmethod
    def tail(self, job_id: UUID, after: int = 0) -> AsyncIterator[Event]:
        """Yield all events above `after`, then live ones, until the final event."""

    @abstractmethod
    async def checkpoints(self, ids: Sequence[UUID]) -> list[Mapping[str, Checkpoint]]:
        """Return the checkpoints of each job, by step."""

    @abstractmethod
    async def edges(self, ids: Sequence[UUID], limit: int | None = None) -> list[Edges]:
        """Return the parents and children of each job, also finished ones.

        `limit` bounds the number of each: there may be 100,000.
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
