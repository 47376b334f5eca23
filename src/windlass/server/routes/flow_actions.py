"""Actions on a whole flow: cancel, retry, resume."""

from __future__ import annotations

from functools import partial
from uuid import UUID

from windlass.core.errors import NotFoundError
from windlass.server.auth.scoped_enqueue import hide_foreign
from windlass.server.context import Ctx, PathId, RequestContext
from windlass.server.schemas.overview import FlowActionView
from windlass.server.schemas.requests import ReasonRequest


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
