"""Access to the store over HTTP: each method with the permissions and the scope of the caller.

Calls without the permission are rejected. Jobs that are invisible to the caller count as missing.
Workers may also do what a running task does: enqueue, cancel, signal. Only workers receive lease
tokens, because a lease token allows its bearer to act for an attempt.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from windlass.core.decisions.enqueue import EnqueueResult
from windlass.core.decisions.transition import (
    ApplyResult,
    Checkpoint,
    Status,
)
from windlass.core.job.dependency import Edges
from windlass.core.job.new_job import NewJob
from windlass.core.job.row import JobRow
from windlass.core.query.job_query import JobQuery, Page
from windlass.server.auth.caller import Caller
from windlass.server.auth.permissions import Permission
from windlass.server.auth.scoped_enqueue import enqueue_scoped
from windlass.server.context import RequestContext
from windlass.server.problem_details import ApiError
from windlass.store import EventPage

T = TypeVar("T")
MAX_AUDITED_IDS = 20  # jobs that one audit entry names
MAX_EVENTS = 1000  # in one response
_MISSING = ApplyResult(Status.MISSING)


def require(caller: Caller, *permissions: Permission) -> None:
    """Raise ApiError unless the caller has one of these permissions."""
    if not caller.has_any(*permissions):
        names = " or ".join(f"'{permission}'" for permission in permissions)
        roles = ", ".join(sorted(caller.roles)) or "none"
        scope = ", limited to one owner or team" if caller.scoped else ""
        raise ApiError(
            "forbidden", f"this needs the permission {names}; roles of the key: {roles}{scope}"
        )


# -- enqueue


async def enqueue(
    ctx: RequestContext, jobs: Sequence[NewJob], *, atomic: bool
) -> list[EnqueueResult]:
    require(ctx.caller, Permission.PRODUCE, Permission.WORK)
    for resume in (False, True):
        retried = [job.retry_of for job in jobs if job.retry_of and job.resume is resume]
        await audit(ctx, "resume" if resume else "retry", retried)
    enqueue_call = partial(ctx.client.store.enqueue, atomic=atomic)
    results = await enqueue_scoped(ctx, jobs, enqueue_call, atomic=atomic)
    if ctx.caller.has_any(Permission.WORK):
        return results
    return [_without_token(ctx.caller, result) for result in results]


def _without_token(caller: Caller, result: EnqueueResult) -> EnqueueResult:
    """Remove the lease token. Scoped callers get the new row, too: the server set its owner."""
    row = result.row if caller.scoped else result.existing
    return result if row is None else replace(result, existing=_strip_token(row))


# -- actions


async def delete(ctx: RequestContext, ids: Sequence[UUID], owner: str | None) -> list[ApplyResult]:
    await audit(ctx, "delete", ids)
    visible = await visible_ids(ctx, ids)
    results = iter(await ctx.client.store.delete([id_ for id_ in ids if id_ in visible], owner))
    return [next(results) if id_ in visible else _MISSING for id_ in ids]


async def act_on_visible(
    ctx: RequestContext,
    items: Sequence[Any],
    act: Callable[[Sequence[Any]], Awaitable[list[ApplyResult]]],
) -> list[ApplyResult]:
    """Act on the visible jobs; return MISSING for the others."""
    visible = await visible_ids(ctx, [item.job_id for item in items])
    results = iter(await act([item for item in items if item.job_id in visible]))
    return [next(results) if item.job_id in visible else _MISSING for item in items]


async def visible_ids(ctx: RequestContext, ids: Sequence[UUID]) -> set[UUID]:
    """Return the visible jobs of these; for an unscoped caller without a read."""
    if not ctx.caller.scoped:
        return set(ids)
    rows = await ctx.client.store.get(list(set(ids)))
    return {row.id for row in rows if row is not None and ctx.caller.can_see(row)}


async def audit(ctx: RequestContext, action: str, ids: Sequence[UUID]) -> None:
    """Add one audit entry for the visible jobs of these."""
    if not ids:
        return
    visible = await visible_ids(ctx, ids)
    names = [str(id_) for id_ in ids if id_ in visible]
    if names:
        more = f" and {len(names) - MAX_AUDITED_IDS} more" if len(names) > MAX_AUDITED_IDS else ""
        await ctx.audit(action, " ".join(names[:MAX_AUDITED_IDS]) + more)


# -- reads


def _strip_token(row: JobRow) -> JobRow:
    return row if row.token is None else replace(row, token=None)


def _visible_row(caller: Caller, row: JobRow | None) -> JobRow | None:
    if row is None or not caller.can_see(row):
        return None
    return row if caller.has_any(Permission.WORK) else _strip_token(row)


async def get(ctx: RequestContext, ids: Sequence[UUID], owner: str | None) -> list[JobRow | None]:
    rows = await ctx.client.store.get(ids, owner)
    return [_visible_row(ctx.caller, row) for row in rows]


async def find(ctx: RequestContext, query: JobQuery) -> Page:
    scoped = scoped_query(ctx.caller, query)
    if scoped is None:
        return Page([], None)
    page = await ctx.client.store.find(scoped)
    if ctx.caller.has_any(Permission.WORK):
        return page
    return Page([_strip_token(row) for row in page.rows], page.cursor)


def scoped_query(caller: Caller, query: JobQuery) -> JobQuery | None:
    """Limit the query to the caller's scope; None if nothing can match."""
    for name in ("owner", "team"):
        own, given = getattr(caller, name), getattr(query, name)
        if own is not None and given not in {None, own}:
            return None
        if own is not None:
            query = replace(query, **{name: own})
    return query


async def events(ctx: RequestContext, job_id: UUID, after: int, limit: int) -> EventPage | None:
    if not await visible_ids(ctx, [job_id]):
        return None
    return await ctx.client.store.events(job_id, after, max(1, min(limit, MAX_EVENTS)))


async def checkpoints(ctx: RequestContext, ids: Sequence[UUID]) -> list[Mapping[str, Checkpoint]]:
    visible = await visible_ids(ctx, ids)
    found = await ctx.client.store.checkpoints(ids)
    return [steps if id_ in visible else {} for id_, steps in zip(ids, found, strict=True)]


async def edges(ctx: RequestContext, ids: Sequence[UUID], limit: int | None) -> list[Edges]:
    found = await ctx.client.store.edges(ids, limit)
    if not ctx.caller.scoped:
        return found
    linked = {id_ for edges in found for id_ in (*edges.parents, *edges.children)}
    visible = await visible_ids(ctx, [*ids, *linked])
    return [
        Edges(
            tuple(parent for parent in edges.parents if parent in visible),
            tuple(child for child in edges.children if child in visible),
        )
        if id_ in visible
        else Edges()
        for id_, edges in zip(ids, found, strict=True)
    ]
