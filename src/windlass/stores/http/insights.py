"""Insights of the HTTP store: each read is one request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

from windlass.core.admission.gates import GateStats
from windlass.core.clock import Instant
from windlass.core.job.attempt import Attempt
from windlass.core.job.failure import Failures
from windlass.core.job.flow_stats import FlowPage, FlowStats
from windlass.core.query.job_query import Count, JobQuery
from windlass.store import QueueStats, Rollup, StoreInsights
from windlass.stores.wire_format import MAX_FLOW_IDS


class HttpInsights(StoreInsights):
    def __init__(self, call: Callable[..., Awaitable[Any]]) -> None:
        self._call = call

    async def count(self, query: JobQuery) -> Count:
        count: Count = await self._call("count", query=query)
        return count

    async def stats(self) -> Mapping[str, QueueStats]:
        stats: Mapping[str, QueueStats] = await self._call("stats")
        return stats

    async def failures(
        self, since: Instant, limit: int, owner: str | None = None, team: str | None = None
    ) -> Failures:
        failures: Failures = await self._call(
            "failures", since=since, limit=limit, owner=owner, team=team
        )
        return failures

    async def gates(self, names: Sequence[str]) -> list[GateStats]:
        stats: list[GateStats] = await self._call("gates", names=names) if names else []
        return stats

    async def rollups(self, since: Instant, until: Instant) -> list[Rollup]:
        rollups: list[Rollup] = await self._call("rollups", since=since, until=until)
        return rollups

    async def attempts(self, job_id: UUID) -> list[Attempt] | None:
        attempts: list[Attempt] | None = await self._call("attempts", job_id=job_id)
        return attempts

    async def flows(
        self, ids: Sequence[UUID], owner: str | None = None, team: str | None = None
    ) -> list[FlowStats | None]:
        flows: list[FlowStats | None] = []
        for start in range(0, len(ids), MAX_FLOW_IDS):
            part = ids[start : start + MAX_FLOW_IDS]
            flows += await self._call("flows", ids=part, owner=owner, team=team)
        return flows

    async def newest_flows(
        self,
        limit: int,
        before: UUID | None = None,
        owner: str | None = None,
        team: str | None = None,
    ) -> FlowPage:
        page: FlowPage = await self._call(
            "newest_flows", limit=limit, before=before, owner=owner, team=team
        )
        return page
