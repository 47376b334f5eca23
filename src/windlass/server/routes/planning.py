"""Schedules: list them, add, pause, resume, run now, delete."""

from __future__ import annotations

from windlass.server.asked import ScheduleAsked
from windlass.server.site import Here
from windlass.server.wire.jobs import EnqueuedView
from windlass.server.wire.survey import ScheduleList, ScheduleView


async def schedules(here: Here) -> ScheduleList:
    """All schedules, by name."""
    found = await here.app.schedules.alist()
    return ScheduleList(schedules=[ScheduleView.of(one) for one in found])


async def add(here: Here, body: ScheduleAsked) -> ScheduleView:
    """Make a job like this one at each tick, by a cron text or an interval."""
    job = body.new_job(here.app, here.caller)
    await here.record("add schedule", body.name)
    planned = await here.app.schedules.aadd(
        body.name, job, cron=body.cron, every=body.every, tz=body.tz, missed=body.missed
    )
    return ScheduleView.of(planned)


async def get(here: Here, name: str) -> ScheduleView:
    """One schedule."""
    return ScheduleView.of(await here.app.schedules.aget(name))


async def pause(here: Here, name: str) -> ScheduleView:
    """Make no jobs until it is resumed; the ticks of a pause do not come back."""
    await here.record("pause schedule", name)
    return ScheduleView.of(await here.app.schedules.apause(name))


async def resume(here: Here, name: str) -> ScheduleView:
    """Make jobs again, from the next tick on."""
    await here.record("resume schedule", name)
    return ScheduleView.of(await here.app.schedules.aresume(name))


async def run(here: Here, name: str) -> EnqueuedView:
    """Enqueue a job of it now, beside its ticks."""
    await here.record("run schedule", name)
    job = await here.app.schedules.arun(name)
    return EnqueuedView.seen(job.row, here.app.codec, duplicate=job.duplicate)


async def delete(here: Here, name: str) -> None:
    """Forget it; the jobs that it made stay."""
    await here.record("delete schedule", name)
    await here.app.schedules.adelete(name)
