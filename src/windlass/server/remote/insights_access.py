"""Access to the insights of the store over HTTP, in the scope of the caller."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from windlass.core.clock import Instant
from windlass.core.errors import InvalidArgumentError
from windlass.core.job.attempt import Attempt
from windlass.core.job.failure import Failures
from windlass.core.job.flow_stats import FlowPage, FlowStats
from windlass.core.query.job_query import Count, JobQuery
from windlass.insights.failure_groups import MAX_SCANNED
from windlass.server.context import RequestContext
from windlass.server.remote.store_access import scoped_query, visible_ids
from windlass.stores.wire_format import MAX_FLOW_IDS

MAX_FLOWS = 100


async def count(ctx: RequestContext, query: JobQuery) -> Count:
    scoped = scoped_query(ctx.caller, query)
    return (
        Count(0, capped=False) if scoped is None else await ctx.client.store.insights.count(scoped)
    )


async def failures(
    ctx: RequestContext, since: Instant, limit: int, owner: str | None, team: str | None
) -> Failures:
    scoped = scoped_query(ctx.caller, JobQuery(owner=owner, team=team))
    if scoped is None:
        return Failures([], capped=False)
    limit = max(1, min(limit, MAX_SCANNED))
    return await ctx.client.store.insights.failures(since, limit, scoped.owner, scoped.team)


async def attempts(ctx: RequestContext, job_id: UUID) -> list[Attempt] | None:
    return (
        await ctx.client.store.insights.attempts(job_id)
        if await visible_ids(ctx, [job_id])
        else None
    )


async def newest_flows(
    ctx: RequestContext, limit: int, before: UUID | None, owner: str | None, team: str | None
) -> FlowPage:
    scoped = scoped_query(ctx.caller, JobQuery(owner=owner, team=team))
    if scoped is None:
        return FlowPage([], None)
    limit = max(1, min(limit, MAX_FLOWS))
    return await ctx.client.store.insights.newest_flows(limit, before, scoped.owner, scoped.team)


async def flows(
    ctx: RequestContext, ids: Sequence[UUID], owner: str | None, team: str | None
) -> list[FlowStats | None]:
    if len(ids) > MAX_FLOW_IDS:
        raise InvalidArgumentError(
            f"{len(ids):,} flows requested, the limit is {MAX_FLOW_IDS:,}; split the request"
        )
    scoped = scoped_query(ctx.caller, JobQuery(owner=owner, team=team))
    if scoped is None:
        return [None] * len(ids)
    return await ctx.client.store.insights.flows(ids, scoped.owner, scoped.team)
