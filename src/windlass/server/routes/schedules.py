"""Schedules: list, create, pause, resume, run now, delete."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path

from windlass.schemas.jobs import EnqueuedView
from windlass.schemas.schedules import ScheduleList, ScheduleView, schedule_view, schedule_views
from windlass.server.context import Ctx
from windlass.server.schemas.schedules import CreateScheduleRequest

ScheduleName = Annotated[str, Path(description="Name of the schedule.")]


async def list_schedules(ctx: Ctx) -> ScheduleList:
    """List all schedules by name."""
    found = await ctx.app.schedules.alist()
    return ScheduleList(schedules=await schedule_views(found, ctx.client))


async def add(ctx: Ctx, body: CreateScheduleRequest) -> ScheduleView:
    """Create a schedule that enqueues a job at each tick of a cron expression or an interval."""
    job = body.new_job(ctx.app, ctx.caller)
    await ctx.audit("add schedule", body.name)
    schedule = await ctx.app.schedules.aadd(
        body.name, job, cron=body.cron, every=body.every, tz=body.tz, missed=body.missed
    )
    return await schedule_view(schedule, ctx.client)


async def get(ctx: Ctx, name: ScheduleName) -> ScheduleView:
    """Get a schedule."""
    return await schedule_view(await ctx.app.schedules.aget(name), ctx.client)


async def pause(ctx: Ctx, name: ScheduleName) -> ScheduleView:
    """Pause a schedule; ticks during the pause are skipped."""
    await ctx.audit("pause schedule", name)
    return await schedule_view(await ctx.app.schedules.apause(name), ctx.client)


async def resume(ctx: Ctx, name: ScheduleName) -> ScheduleView:
    """Resume a schedule from its next tick."""
    await ctx.audit("resume schedule", name)
    return await schedule_view(await ctx.app.schedules.aresume(name), ctx.client)


async def run(ctx: Ctx, name: ScheduleName) -> EnqueuedView:
    """Enqueue a job of the schedule now, in addition to its ticks."""
    await ctx.audit("run schedule", name)
    job = await ctx.app.schedules.arun(name)
    return EnqueuedView.from_row(job.row, ctx.app.codec, duplicate=job.duplicate)


async def delete(ctx: Ctx, name: ScheduleName) -> None:
    """Delete a schedule; its jobs are kept."""
    await ctx.audit("delete schedule", name)
    await ctx.app.schedules.adelete(name)
