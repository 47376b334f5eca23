"""Flows: list and read them, and act on a whole flow."""

from __future__ import annotations

from functools import partial
from typing import Annotated
from uuid import UUID

from fastapi import Query

from windlass.core.errors import NotFoundError
from windlass.core.query.job_query import MAX_PAGE, JobQuery
from windlass.schemas.flows import FlowActionView, FlowPageView, FlowView
from windlass.schemas.jobs import JobNode
from windlass.server.auth.scoped_enqueue import hide_foreign
from windlass.server.context import Ctx, PathId, RequestContext
from windlass.server.remote import store_access
from windlass.server.remote.insights_access import MAX_FLOWS
from windlass.server.schemas.job_requests import ReasonRequest

MAX_PARENTS = 20  # listed of each job of a flow; a job may have 100,000


async def list_flows(
    ctx: Ctx,
    limit: Annotated[int, Query(ge=1, le=MAX_FLOWS, description="Maximum number of flows.")] = 50,
    cursor: Annotated[UUID | None, Query(description="`cursor` of the previous page.")] = None,
) -> FlowPageView:
    """List flows, newest first, each summarized from its newest 1,000 jobs."""
    caller = ctx.caller
    page = await ctx.client.store.insights.newest_flows(limit, cursor, caller.owner, caller.team)
    return FlowPageView.of(page)


async def get(
    ctx: Ctx,
    flow_id: PathId,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE, description="Maximum number of jobs.")] = 100,
) -> FlowView:
    """Get a flow, and its newest jobs with their dependencies.

    A key limited to an owner or team gets only the visible jobs, and counts of these.
    """
    caller, store = ctx.caller, ctx.client.store
    query = JobQuery(
        flow_id=flow_id, owner=caller.owner, team=caller.team, limit=limit, omit_payload=True
    )
    rows = (await store.find(query)).rows
    if not rows:
        raise NotFoundError(f"no flow {flow_id}")
    stats = await ctx.client.flow(flow_id, owner=caller.owner, team=caller.team)
    edges = await store.edges([row.id for row in rows], MAX_PARENTS + 1)
    own = {row.id for row in rows}
    visible = own | await store_access.visible_ids(
        ctx, [id_ for edge in edges for id_ in edge.parents[:MAX_PARENTS] if id_ not in own]
    )
    jobs = [
        JobNode.with_parents(row, [id_ for id_ in edge.parents[:MAX_PARENTS] if id_ in visible])
        for row, edge in zip(rows, edges, strict=True)
    ]
    return FlowView.of(stats, jobs, more=any(len(edge.parents) > MAX_PARENTS for edge in edges))


async def cancel(ctx: Ctx, flow_id: PathId, body: ReasonRequest | None = None) -> FlowActionView:
    """Cancel all unfinished jobs of a flow."""
    await _audit_visible(ctx, "cancel flow", flow_id)
    reason = None if body is None else body.reason
    count = await ctx.client.cancel_flow(flow_id, by=ctx.caller.name, reason=reason)
    return FlowActionView(id=flow_id, jobs=count)


async def retry(ctx: Ctx, flow_id: PathId) -> FlowActionView:
    """Retry the failed and canceled jobs of a flow, and their dependents; keep succeeded ones."""
    await _audit_visible(ctx, "retry flow", flow_id)
    return await _retry(ctx, flow_id, resume=False)


async def resume(ctx: Ctx, flow_id: PathId) -> FlowActionView:
    """Retry a flow, and resume each job after its last completed step."""
    await _audit_visible(ctx, "resume flow", flow_id)
    return await _retry(ctx, flow_id, resume=True)


async def _retry(ctx: RequestContext, flow_id: UUID, *, resume: bool) -> FlowActionView:
    rows = await ctx.client.retry_flow(
        flow_id, resume=resume, redact=partial(hide_foreign, ctx.caller)
    )
    return FlowActionView(id=flow_id, jobs=len(rows))


async def _audit_visible(ctx: RequestContext, action: str, flow_id: UUID) -> None:
    """Add an audit entry; raise NotFoundError unless the caller can see all jobs of the flow."""
    found = False
    async for row in ctx.client.flow_jobs(flow_id):
        found = ctx.caller.can_see(row)
        if not (found and ctx.caller.scoped):
            break  # an unscoped caller sees all jobs
    if not found:
        raise NotFoundError(f"no flow {flow_id}")
    await ctx.audit(action, str(flow_id))
