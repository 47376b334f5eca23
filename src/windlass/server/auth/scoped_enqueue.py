"""Enqueue rules for scoped keys: keys that are limited to one owner or team.

Jobs of such a key belong to its owner and team. Jobs that it refers to must belong to them, too;
all others count as missing. The store separates owners, but not teams, so this module does: a job
of another team is never a parent, a retry origin, replaced by debounce, or returned as a duplicate.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from windlass.core.decisions.enqueue import (
    EnqueueResult,
    EnqueueStatus,
    origin_not_found,
    parent_not_found,
)
from windlass.core.errors import ConflictError, InvalidArgumentError, NotFoundError, RequestError
from windlass.core.job.new_job import NewJob
from windlass.core.job.state import State
from windlass.core.query.job_query import JobQuery
from windlass.server.auth.caller import Caller
from windlass.server.context import RequestContext

_ACTIVE = frozenset(state for state in State if not state.final)
EnqueueCall = Callable[[list[NewJob]], Awaitable[list[EnqueueResult]]]


def scoped_value(field: str, given: str | None, own: str | None) -> str | None:
    """Return the owner (or team) of a request: the key's own if it has one, else the given one.

    Raise InvalidArgumentError if the given one differs from the key's own.
    """
    if own is None:
        return given
    if given not in {None, own}:
        raise InvalidArgumentError(
            f"{field} is {given!r:.80}, but this key is limited to {own!r:.80}; omit {field}"
        )
    return own


async def enqueue_scoped(
    ctx: RequestContext, jobs: Sequence[NewJob], enqueue: EnqueueCall, *, atomic: bool = False
) -> list[EnqueueResult]:
    """Enqueue the permitted jobs by one call of `enqueue`; return one result per job, in order."""
    if not ctx.caller.scoped:
        return await enqueue(list(jobs))
    references = await _References.of(ctx, jobs)
    checked = [await _scoped_job(ctx, new, references) for new in jobs]
    error = next((item for item in checked if not isinstance(item, NewJob)), None)
    if atomic and error is not None:
        return [EnqueueResult(EnqueueStatus.REFUSED, new, error=error) for new in jobs]
    results = iter(await enqueue([item for item in checked if isinstance(item, NewJob)]))
    return [
        hide_foreign(ctx.caller, next(results)) if isinstance(item, NewJob) else _refused(new, item)
        for new, item in zip(jobs, checked, strict=True)
    ]


def hide_foreign(caller: Caller, result: EnqueueResult) -> EnqueueResult:
    """Replace the result by a conflict if it contains a job that the caller cannot see."""
    if result.existing is None or caller.can_see(result.existing):
        return result
    return _refused(result.new, _key_taken_error(result.new))


def _refused(new: NewJob, error: RequestError) -> EnqueueResult:
    conflict = isinstance(error, ConflictError)
    return EnqueueResult(
        EnqueueStatus.CONFLICT if conflict else EnqueueStatus.REFUSED, new, error=error
    )


@dataclass(frozen=True, slots=True)
class _References:
    """Referenced jobs that the caller cannot see, and whether it may add jobs to each flow."""

    foreign: frozenset[UUID]
    flows: Mapping[UUID, bool]

    @staticmethod
    async def of(ctx: RequestContext, jobs: Sequence[NewJob]) -> _References:
        ids = {id_ for new in jobs for id_ in (*new.depends_on, new.retry_of) if id_ is not None}
        rows = await ctx.client.store.get(sorted(ids)) if ctx.caller.team is not None else []
        foreign = frozenset(row.id for row in rows if row and not ctx.caller.can_see(row))
        flows = {new.flow_id for new in jobs if new.flow_id is not None}
        return _References(foreign, {id_: await _may_join(ctx, id_) for id_ in flows})


async def _scoped_job(
    ctx: RequestContext, new: NewJob, references: _References
) -> NewJob | RequestError:
    """Return the job with the caller's owner and team, or the error that forbids it."""
    caller = ctx.caller
    try:
        owner = scoped_value("owner", new.owner or None, caller.owner)
        team = scoped_value("team", new.team, caller.team)
    except InvalidArgumentError as error:
        return error
    for parent in new.depends_on:
        if parent in references.foreign:
            return parent_not_found(new, parent)
    if new.retry_of in references.foreign:
        return origin_not_found(new)
    if new.flow_id is not None and not references.flows[new.flow_id]:
        return NotFoundError(f"no flow {new.flow_id}")
    own = replace(new, owner=owner or "", team=team)
    return _key_taken_error(new) if await _would_displace_foreign(ctx, own) else own


async def _would_displace_foreign(ctx: RequestContext, job: NewJob) -> bool:
    """Return whether debounce would replace a job of another team."""
    if ctx.caller.team is None or not job.debounce or job.unique_key is None:
        return False
    query = JobQuery(
        owner=job.owner,
        tasks=frozenset({job.task}),
        unique_key=job.unique_key,
        states=_ACTIVE,
        limit=1,
    )
    rows = (await ctx.client.store.find(query)).rows
    return any(not ctx.caller.can_see(row) for row in rows)


def _key_taken_error(job: NewJob) -> ConflictError:
    return ConflictError(
        f"the id, request id or unique key of job {job.id} is taken by a job of another team; "
        "use other values"
    )


async def _can_see_flow(ctx: RequestContext, flow_id: UUID) -> bool:
    """Return whether any job of the flow is visible to the caller."""
    query = JobQuery(flow_id=flow_id, owner=ctx.caller.owner, team=ctx.caller.team, limit=1)
    while True:
        page = await ctx.client.store.find(query)
        if page.rows or page.cursor is None:
            return bool(page.rows)
        query = replace(query, cursor=page.cursor)


async def _may_join(ctx: RequestContext, flow_id: UUID) -> bool:
    """Return whether the caller may add jobs to a flow: one that it can see, or a new one.

    A job in a flow makes the whole flow visible to its owner.
    """
    [stats] = await ctx.client.store.insights.flows([flow_id])
    return stats is None or await _can_see_flow(ctx, flow_id)
