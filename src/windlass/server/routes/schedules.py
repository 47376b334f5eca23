"""Schedules: list, create, pause, resume, run now, delete."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import Path

from windlass.records.schedule_records import ScheduleInfo
from windlass.server.context import Ctx, RequestContext
from windlass.server.schemas.jobs import EnqueuedView
from windlass.server.schemas.schedules import CreateScheduleRequest, ScheduleList, ScheduleView

ScheduleName = Annotated[str, Path(description="Name of the schedule.")]


async def list_schedules(ctx: Ctx) -> ScheduleList:
    """List all schedules by name."""
    return ScheduleList(schedules=await _views(ctx, await ctx.app.schedules.alist()))


async def _views(ctx: RequestContext, infos: Sequence[ScheduleInfo]) -> Sequence[ScheduleView]:
    """Convert schedules; drop the last job of each if it is past retention."""
    last = [info.last_job_id for info in infos if info.last_job_id is not None]
    kept = {row.id for row in await ctx.client.store.get(last) if row is not None}
    codec = ctx.app.codec
    return [
        ScheduleView.from_schedule(info, codec, last_job_exists=info.last_job_id in kept)
        for info in infos
    ]


async def _view(ctx: RequestContext, schedule: ScheduleInfo) -> ScheduleView:
    [view] = await _views(ctx, [schedule])
    return view


async def add(ctx: Ctx, body: CreateScheduleRequest) -> ScheduleView:
    """Create a schedule that enqueues a job at each tick of a cron expression or an interval."""
    job = body.new_job(ctx.app, ctx.caller)
    await ctx.audit("add schedule", body.name)
    schedule = await ctx.app.schedules.aadd(
        body.name, job, cron=body.cron, every=body.every, tz=body.tz, missed=body.missed
    )
    return await _view(ctx, schedule)


async def get(ctx: Ctx, name: ScheduleName) -> ScheduleView:
    """Get a schedule."""
    return await _view(ctx, await ctx.app.schedules.aget(name))


async def pause(ctx: Ctx, name: ScheduleName) -> ScheduleView:
    """Pause a schedule; ticks during the pause are skipped."""
    await ctx.audit("pause schedule", name)
    return await _view(ctx, await ctx.app.schedules.apause(name))


async def resume(ctx: Ctx, name: ScheduleName) -> ScheduleView:
    """Resume a schedule from its next tick."""
    await ctx.audit("resume schedule", name)
    return await _view(ctx, await ctx.app.schedules.aresume(name))


async def run(ctx: Ctx, name: ScheduleName) -> EnqueuedView:
    """Enqueue a job of the schedule now, in addition to its ticks."""
    await ctx.audit("run schedule", name)
    job = await ctx.app.schedules.arun(name)
    return EnqueuedView.from_row(job.row, ctx.app.codec, duplicate=job.duplicate)


async def delete(ctx: Ctx, name: ScheduleName) -> None:
    """Delete a schedule; its jobs are kept."""
    await ctx.audit("delete schedule", name)
    await ctx.app.schedules.adelete(name)
