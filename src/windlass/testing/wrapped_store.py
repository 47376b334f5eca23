"""Base class of store wrappers: every method goes through one hook."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import TypeVar
from uuid import UUID

from windlass.core.admission.gates import GateStats
from windlass.core.clock import Instant
from windlass.core.decisions.enqueue import EnqueueResult
from windlass.core.decisions.transition import ApplyRequest, ApplyResult, Checkpoint
from windlass.core.event import Event
from windlass.core.job.attempt import Attempt
from windlass.core.job.dependency import Edges
from windlass.core.job.failure import Failures
from windlass.core.job.flow_stats import FlowPage, FlowStats
from windlass.core.job.lease import Claim, ExtendResult, Lease
from windlass.core.job.new_job import NewJob
from windlass.core.job.row import JobRow
from windlass.core.query.job_query import Count, JobQuery, Page
from windlass.core.versioned_record import Entry, Put, PutResult
from windlass.store import (
    AttemptRecords,
    Capabilities,
    EventPage,
    Pruned,
    QueueStats,
    Retention,
    Rollup,
    Store,
    StoreInsights,
)

T = TypeVar("T")


class WrappedStore(Store):
    """Forwards every method through `around`. Only `tail`, an iterator, is forwarded directly."""

    def __init__(self, store: Store) -> None:
        self.store = store

    @abstractmethod
    async def around(self, method: str, call: Callable[[], Awaitable[T]]) -> T:
        """Run the call. An implementation may skip, repeat, delay or fail it."""

    @abstractmethod
    def wrap(self, store: Store) -> Store:
        """Wrap another handle on the same data in the same way."""

    @property
    def capabilities(self) -> Capabilities:
        return self.store.capabilities

    @property
    def insights(self) -> StoreInsights:
        return WrappedInsights(self)

    async def migrate(self) -> Sequence[str]:
        return await self.around("migrate", self.store.migrate)

    async def ping(self) -> Instant:
        return await self.around("ping", self.store.ping)

    def twin(self) -> Store:
        return self.wrap(self.store.twin())

    async def close(self) -> None:
        await self.around("close", self.store.close)

    async def enqueue(self, jobs: Sequence[NewJob], *, atomic: bool = False) -> list[EnqueueResult]:
        return await self.around("enqueue", lambda: self.store.enqueue(jobs, atomic=atomic))

    async def claim(self, claim: Claim) -> list[JobRow]:
        return await self.around("claim", lambda: self.store.claim(claim))

    async def extend(self, leases: Sequence[Lease], seconds: float) -> list[ExtendResult]:
        return await self.around("extend", lambda: self.store.extend(leases, seconds))

    async def apply(self, requests: Sequence[ApplyRequest]) -> list[ApplyResult]:
        return await self.around("apply", lambda: self.store.apply(requests))

    async def record(self, attempt_records: Sequence[AttemptRecords]) -> list[ApplyResult]:
        return await self.around("record", lambda: self.store.record(attempt_records))

    async def wait(self, queues: Sequence[str], timeout: float) -> bool:
        return await self.around("wait", lambda: self.store.wait(queues, timeout))

    async def due(self, limit: int) -> list[JobRow]:
        return await self.around("due", lambda: self.store.due(limit))

    async def prune(self, retention: Retention, limit: int) -> Pruned:
        return await self.around("prune", lambda: self.store.prune(retention, limit))

    async def delete(self, ids: Sequence[UUID], owner: str | None = None) -> list[ApplyResult]:
        return await self.around("delete", lambda: self.store.delete(ids, owner))

    async def get(self, ids: Sequence[UUID], owner: str | None = None) -> list[JobRow | None]:
        return await self.around("get", lambda: self.store.get(ids, owner))

    async def find(self, query: JobQuery) -> Page:
        return await self.around("find", lambda: self.store.find(query))

    async def events(self, job_id: UUID, after: int = 0, limit: int = 1000) -> EventPage | None:
        return await self.around("events", lambda: self.store.events(job_id, after, limit))

    def tail(self, job_id: UUID, after: int = 0) -> AsyncIterator[Event]:
        return self.store.tail(job_id, after)

    async def checkpoints(self, ids: Sequence[UUID]) -> list[Mapping[str, Checkpoint]]:
        return await self.around("checkpoints", lambda: self.store.checkpoints(ids))

    async def edges(self, ids: Sequence[UUID], limit: int | None = None) -> list[Edges]:
        return await self.around("edges", lambda: self.store.edges(ids, limit))

    async def put_records(self, puts: Sequence[Put]) -> list[PutResult]:
        return await self.around("put_records", lambda: self.store.put_records(puts))

    async def get_records(self, kind: str, keys: Sequence[str]) -> list[Entry | None]:
        return await self.around("get_records", lambda: self.store.get_records(kind, keys))

    async def list_records(self, kind: str, after: str = "", limit: int = 1000) -> list[Entry]:
        return await self.around(
            "list_records", lambda: self.store.list_records(kind, after, limit)
        )

    async def delete_records(self, kind: str, keys: Sequence[str]) -> None:
        await self.around("delete_records", lambda: self.store.delete_records(kind, keys))


class WrappedInsights(StoreInsights):
    """Forwards every method of the insights through `around` of their store."""

    def __init__(self, wrapper: WrappedStore) -> None:
        self._wrapper = wrapper
        self._insights = wrapper.store.insights

    async def count(self, query: JobQuery) -> Count:
        return await self._wrapper.around("count", lambda: self._insights.count(query))

    async def stats(self) -> Mapping[str, QueueStats]:
        return await self._wrapper.around("stats", self._insights.stats)

    async def failures(
        self, since: Instant, limit: int, owner: str | None = None, team: str | None = None
    ) -> Failures:
        return await self._wrapper.around(
            "failures", lambda: self._insights.failures(since, limit, owner, team)
        )

    async def gates(self, names: Sequence[str]) -> list[GateStats]:
        return await self._wrapper.around("gates", lambda: self._insights.gates(names))

    async def rollups(self, since: Instant, until: Instant) -> list[Rollup]:
        return await self._wrapper.around("rollups", lambda: self._insights.rollups(since, until))

    async def attempts(self, job_id: UUID) -> list[Attempt] | None:
        return await self._wrapper.around("attempts", lambda: self._insights.attempts(job_id))

    async def flows(
        self, ids: Sequence[UUID], owner: str | None = None, team: str | None = None
    ) -> list[FlowStats | None]:
        return await self._wrapper.around("flows", lambda: self._insights.flows(ids, owner, team))

    async def newest_flows(
        self,
        limit: int,
        before: UUID | None = None,
        owner: str | None = None,
        team: str | None = None,
    ) -> FlowPage:
        return await self._wrapper.around(
            "newest_flows", lambda: self._insights.newest_flows(limit, before, owner, team)
        )
