"""Queues, workers, tasks, limits, failures, flows and statistics."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import Query

from windlass.core.clock import SECOND, Instant, from_datetime, minute_of
from windlass.core.errors import NotFoundError
from windlass.core.query.job_query import MAX_PAGE
from windlass.core.query.job_query import Query as JobQuery
from windlass.core.size_limits import MAX_NAME, check_text
from windlass.limits import LimitRecords
from windlass.server.context import Ctx, PathId
from windlass.server.problems import invalid_field
from windlass.server.remote import store_access
from windlass.server.remote.store_access import MAX_FLOWS
from windlass.server.schemas.jobs import JobNode
from windlass.server.schemas.overview import (
    FailureList,
    FlowPageView,
    FlowView,
    LimitList,
    LimitView,
    PausedView,
    Queues,
    QueueView,
    Stats,
    StatsGroupBy,
    TaskList,
    TaskView,
    Workers,
    WorkerView,
)

MINUTE = 60
HOUR = 60 * MINUTE
DAY = 24 * HOUR
MAX_STEPS = 1500
MAX_PARENTS = 20  # listed of each job of a flow; a job may have 100,000


async def queues(ctx: Ctx) -> Queues:
    """List queues with unfinished jobs, paused queues, and recently active queues."""
    return Queues(queues=[QueueView.of(one) for one in await ctx.client.queues()])


async def pause(ctx: Ctx, queue: str) -> PausedView:
    """Pause a queue: its jobs are not claimed; running jobs continue."""
    return await _set_paused(ctx, queue, paused=True)


async def resume(ctx: Ctx, queue: str) -> PausedView:
    """Resume a paused queue."""
    return await _set_paused(ctx, queue, paused=False)


async def _set_paused(ctx: Ctx, queue: str, *, paused: bool) -> PausedView:
    check_text("the name of the queue", queue, MAX_NAME)
    await ctx.audit("pause queue" if paused else "resume queue", queue)
    await ctx.client.store.pause([queue], paused=paused)
    return PausedView(name=queue, paused=paused)


async def workers(ctx: Ctx) -> Workers:
    """List running workers."""
    return Workers(workers=[WorkerView.of(one) for one in await ctx.client.workers()])


async def limits(ctx: Ctx) -> LimitList:
    """List limits, with the number of jobs that hold a slot and that wait."""
    found = await LimitRecords(ctx.client.store).list()
    return LimitList(limits=[LimitView.of(one) for one in found])


async def failures(
    ctx: Ctx,
    since: Annotated[datetime | None, Query(description="Default: a day ago.")] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 20,
    group: Annotated[
        str | None,
        Query(pattern="^[0-9a-f]{24}$", description="Only this group, with its job ids."),
    ] = None,
) -> FailureList:
    """List the top failures by task and error, among the last 2,000 failed jobs."""
    start = (
        await ctx.client.store.ping() - DAY * SECOND if since is None else _instant("since", since)
    )
    caller = ctx.caller
    found = await ctx.client.failures(start, owner=caller.owner, team=caller.team)
    return FailureList.of(found, start, limit, group)


async def tasks(ctx: Ctx) -> TaskList:
    """List the tasks of this server's app, with the JSON schemas of their arguments."""
    found = sorted(ctx.app.tasks, key=lambda spec: spec.name)
    return TaskList(tasks=[TaskView.of(spec) for spec in found])


async def flows(
    ctx: Ctx,
    limit: Annotated[int, Query(ge=1, le=MAX_FLOWS)] = 50,
    cursor: UUID | None = None,
) -> FlowPageView:
    """List flows, newest first, each summarized from its newest 1,000 jobs."""
    caller = ctx.caller
    page = await ctx.client.store.newest_flows(limit, cursor, caller.owner, caller.team)
    return FlowPageView.of(page)


async def flow(
    ctx: Ctx, flow_id: PathId, limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100
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
        ctx, [id_ for one in edges for id_ in one.parents[:MAX_PARENTS] if id_ not in own]
    )
    jobs = [
        JobNode.with_parents(row, [id_ for id_ in one.parents[:MAX_PARENTS] if id_ in visible])
        for row, one in zip(rows, edges, strict=True)
    ]
    return FlowView.of(stats, jobs, more=any(len(one.parents) > MAX_PARENTS for one in edges))


async def stats(
    ctx: Ctx,
    since: Annotated[datetime | None, Query(description="Default: an hour ago.")] = None,
    until: Annotated[datetime | None, Query(description="Default: now.")] = None,
    step: Annotated[
        int, Query(ge=MINUTE, multiple_of=MINUTE, description="Seconds per data point.")
    ] = MINUTE,
    by: Annotated[
        StatsGroupBy | None,
        Query(description="Group by queue or by task only, or sum up everything (`none`)."),
    ] = None,
) -> Stats:
    """Get time series of finished attempts by queue, task and outcome, for charts."""
    end = await ctx.client.store.ping() if until is None else _instant("until", until)
    start = minute_of(end - HOUR * SECOND if since is None else _instant("since", since))
    if not 0 <= end - start <= MAX_STEPS * step * SECOND:
        raise invalid_field(
            "since",
            f"must be before until, and within {MAX_STEPS:,} steps of it; use a larger step",
        )
    return Stats.of(start, end, step, await ctx.client.store.rollups(start, end), by)


def _instant(field: str, value: datetime) -> Instant:
    if value.tzinfo is None:
        raise invalid_field(field, "needs a time zone: 2026-01-31T12:00:00Z")
    return from_datetime(value)
