"""Actions on one job: submit, cancel, retry, resume, delete."""

from __future__ import annotations

from uuid import UUID

from fastapi import Response, status

from windlass.client import accepted_row
from windlass.core.decisions.enqueue import EnqueueResult
from windlass.core.errors import ConflictError
from windlass.schemas.job_actions import CancelView, JobStateView
from windlass.schemas.jobs import EnqueuedView
from windlass.server.auth.scoped_enqueue import hide_foreign
from windlass.server.context import Ctx, PathId, RequestContext
from windlass.server.routes.bulk_actions import delete_job
from windlass.server.schemas.job_requests import ReasonRequest


async def submit(ctx: Ctx, job_id: PathId) -> JobStateView:
    """Submit a held job to its queue."""
    await _audit_visible(ctx, "submit", job_id)
    return JobStateView(id=job_id, state=await ctx.client.submit(job_id))


async def cancel(ctx: Ctx, job_id: PathId, body: ReasonRequest | None = None) -> CancelView:
    """Cancel a job. A running job is stopped by its worker, and will end as canceled."""
    await _audit_visible(ctx, "cancel", job_id)
    reason = None if body is None else body.reason
    try:
        state = await ctx.client.cancel(job_id, by=ctx.caller.name, reason=reason)
    except ConflictError:
        state = (await ctx.job(job_id)).state  # it ended before the cancel
        if not state.final:
            raise
    return CancelView.of(job_id, state)


async def retry(ctx: Ctx, job_id: PathId, response: Response) -> EnqueuedView:
    """Re-run a finished job from the start, as a new job."""
    await _audit_visible(ctx, "retry", job_id)
    return _rerun_response(ctx, await ctx.client.retry(job_id), response)


async def resume(ctx: Ctx, job_id: PathId, response: Response) -> EnqueuedView:
    """Re-run a finished job as a new job, after its last completed step."""
    await _audit_visible(ctx, "resume", job_id)
    return _rerun_response(ctx, await ctx.client.resume(job_id), response)


def _rerun_response(ctx: RequestContext, result: EnqueueResult, response: Response) -> EnqueuedView:
    row = accepted_row(hide_foreign(ctx.caller, result))
    duplicate = row.id != result.new.id
    response.status_code = status.HTTP_200_OK if duplicate else status.HTTP_201_CREATED
    return EnqueuedView.from_row(row, ctx.app.codec, duplicate=duplicate)


async def delete(ctx: Ctx, job_id: PathId) -> None:
    """Delete a finished job and its log permanently."""
    await _audit_visible(ctx, "delete", job_id)
    await delete_job(ctx, job_id)


async def _audit_visible(ctx: RequestContext, action: str, job_id: UUID) -> None:
    await ctx.job(job_id)  # raises for an invisible job, before the audit entry
    await ctx.audit(action, str(job_id))
