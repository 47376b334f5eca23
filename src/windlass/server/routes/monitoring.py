"""Monitoring: workers, tasks, limits, failures, statistics and the audit log."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import Query

from windlass.core.clock import SECOND, Instant, from_datetime, minute_of
from windlass.core.query.job_query import MAX_PAGE
from windlass.records.limit_records import LimitRecords
from windlass.schemas.limits import LimitList
from windlass.schemas.workers import Workers
from windlass.server.auth.audit import AuditLog
from windlass.server.context import Ctx
from windlass.server.problem_details import invalid_field
from windlass.server.schemas.monitoring import (
    AuditPage,
    FailureList,
    Stats,
    StatsGroupBy,
    TaskList,
    TaskView,
)

MINUTE = 60
HOUR = 60 * MINUTE
DAY = 24 * HOUR
MAX_STEPS = 1500


async def workers(ctx: Ctx) -> Workers:
    """List running workers."""
    return Workers.of(await ctx.client.workers())


async def limits(ctx: Ctx) -> LimitList:
    """List limits, with the number of jobs that hold a slot and that wait."""
    return LimitList.of(await LimitRecords(ctx.client.store).list())


async def failures(
    ctx: Ctx,
    since: Annotated[
        datetime | None, Query(description="Failed at this time or later; default: a day ago.")
    ] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE, description="Maximum number of groups.")] = 20,
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


async def stats(
    ctx: Ctx,
    since: Annotated[
        datetime | None, Query(description="Start of the range; default: an hour ago.")
    ] = None,
    until: Annotated[datetime | None, Query(description="End of the range; default: now.")] = None,
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
    return Stats.of(start, end, step, await ctx.client.store.insights.rollups(start, end), by)


def _instant(field: str, value: datetime) -> Instant:
    if value.tzinfo is None:
        raise invalid_field(field, "needs a time zone: 2026-01-31T12:00:00Z")
    return from_datetime(value)


async def audit(
    ctx: Ctx,
    after: Annotated[str, Query(description="`cursor` of the previous page.")] = "",
    limit: Annotated[int, Query(ge=1, le=1000, description="Maximum number of entries.")] = 100,
) -> AuditPage:
    """List audit entries, newest first; kept for 90 days."""
    return AuditPage.of(await AuditLog(ctx.client.store).list(after, limit), limit)
