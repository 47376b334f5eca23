"""Bulk actions: one action on all jobs that match a filter."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from uuid import UUID

from windlass.client import check_accepted
from windlass.core.decisions.enqueue import EnqueueResult
from windlass.core.decisions.transition import Status
from windlass.core.errors import ConflictError, NotFoundError, RequestError
from windlass.core.job.row import JobRow
from windlass.core.query.job_query import JobQuery, Page, matches
from windlass.schemas.job_actions import BulkActionView, RefusedView
from windlass.server.auth.permissions import Permission
from windlass.server.auth.scoped_enqueue import hide_foreign
from windlass.server.context import Ctx, RequestContext
from windlass.server.problem_details import ApiError, invalid_field
from windlass.server.schemas.job_requests import BulkAction, BulkActionRequest

# A second call must not re-run the same jobs again.
RERUNS = frozenset({BulkAction.RETRY, BulkAction.RESUME})
BATCH = 50  # concurrent actions, which a store may combine into one write
MAX_REPORTED = 20  # rejected jobs in the response


async def apply(ctx: Ctx, body: BulkActionRequest) -> BulkActionView:
    """Apply an action to all matching jobs, up to `limit`; continue with `cursor`.

    With `id`, apply it to the named jobs that match; a missing job is not `matched`.
    A job whose state forbids the action is reported in `refused`; the others are not affected.
    """
    if body.action is BulkAction.DELETE and not ctx.caller.role_permits(Permission.DELETE):
        raise ApiError("forbidden", "deleting jobs needs the permission 'delete'")
    if body.filter.empty:
        raise invalid_field("filter", "empty; select jobs by queue, state, time or id")
    query = body.filter.query(ctx.caller, body.cursor)
    target = body.filter.model_dump_json(exclude_unset=True, by_alias=True)
    await ctx.audit(f"{body.action.value} all matching", target)
    page = await _page(ctx, query, body.filter.id)
    refused: list[RefusedView] = []
    for start in range(0, len(page.rows), BATCH):
        batch = page.rows[start : start + BATCH]
        results = await asyncio.gather(*(_apply_to(ctx, body, row) for row in batch))
        refused += [result for result in results if result is not None]
    return BulkActionView(
        matched=len(page.rows),
        done=len(page.rows) - len(refused),
        refused=refused[:MAX_REPORTED],
        cursor=page.cursor,
    )


async def _page(ctx: RequestContext, query: JobQuery, ids: Sequence[UUID] | None) -> Page:
    store = ctx.client.store
    if ids is None:
        return await store.find(query)
    found = await store.get(list(dict.fromkeys(ids)))
    return Page([row for row in found if row is not None and matches(query, row)], None)


async def _apply_to(
    ctx: RequestContext, body: BulkActionRequest, row: JobRow
) -> RefusedView | None:
    try:
        if body.action in RERUNS and row.retried_as is not None:
            raise ConflictError(f"job {row.id} was already retried, as {row.retried_as}")
        await _action(ctx, body)(row.id)
    except RequestError as error:
        return RefusedView(id=row.id, code=error.code, detail=str(error))
    return None


def _action(ctx: RequestContext, body: BulkActionRequest) -> Callable[[UUID], Awaitable[object]]:
    client = ctx.client
    match body.action:
        case BulkAction.SUBMIT:
            return client.submit
        case BulkAction.CANCEL:
            return lambda job: client.cancel(job, by=ctx.caller.name, reason=body.reason)
        case BulkAction.RETRY:
            return lambda job: _rerun(ctx, client.retry(job))
        case BulkAction.RESUME:
            return lambda job: _rerun(ctx, client.resume(job))
        case BulkAction.DELETE:
            return lambda job: delete_job(ctx, job)


async def _rerun(ctx: RequestContext, call: Awaitable[EnqueueResult]) -> None:
    check_accepted(hide_foreign(ctx.caller, await call))


async def delete_job(ctx: RequestContext, job_id: UUID) -> None:
    """Delete a finished job; raise ConflictError for an unfinished one."""
    [result] = await ctx.client.store.delete([job_id])
    if result.status is Status.MISSING:
        raise NotFoundError(f"no job {job_id}")
    if not result.applied:
        raise ConflictError(f"job {job_id} is {result.state}; cancel it before you delete it")
