"""Schedules: list them, add, pause, resume, run now, delete."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.schedule_records import Planned
from windlass.server.context import Here, Visit
from windlass.server.schemas.jobs import EnqueuedView
from windlass.server.schemas.overview import ScheduleList, ScheduleView
from windlass.server.schemas.requests import ScheduleAsked


async def schedules(here: Here) -> ScheduleList:
    """All schedules, by name."""
    return ScheduleList(schedules=await _seen(here, await here.app.schedules.alist()))


async def _seen(here: Visit, found: Sequence[Planned]) -> Sequence[ScheduleView]:
    """With the last job of each, where that is still kept."""
    last = [one.last_job_id for one in found if one.last_job_id is not None]
    kept = {row.id for row in await here.client.store.get(last) if row is not None}
    codec = here.app.codec
    return [ScheduleView.seen(one, codec, kept=one.last_job_id in kept) for one in found]


async def _one(here: Visit, planned: Planned) -> ScheduleView:
    [view] = await _seen(here, [planned])
    return view


async def add(here: Here, body: ScheduleAsked) -> ScheduleView:
    """Make a job like this one at each tick, by a cron text or an interval."""
    job = body.new_job(here.app, here.caller)
    await here.record("add schedule", body.name)
    planned = await here.app.schedules.aadd(
        body.name, job, cron=body.cron, every=body.every, tz=body.tz, missed=body.missed
    )
    return await _one(here, planned)


async def get(here: Here, name: str) -> ScheduleView:
    """One schedule."""
    return await _one(here, await here.app.schedules.aget(name))


async def pause(here: Here, name: str) -> ScheduleView:
    """Make no jobs until it is resumed; the ticks of a pause do not come back."""
    await here.record("pause schedule", name)
    return await _one(here, await here.app.schedules.apause(name))


async def resume(here: Here, name: str) -> ScheduleView:
    """Make jobs again, from the next tick on."""
    await here.record("resume schedule", name)
    return await _one(here, await here.app.schedules.aresume(name))


async def run(here: Here, name: str) -> EnqueuedView:
    """Enqueue a job of it now, beside its ticks."""
    await here.record("run schedule", name)
    job = await here.app.schedules.arun(name)
    return EnqueuedView.seen(job.row, here.app.codec, duplicate=job.duplicate)


async def delete(here: Here, name: str) -> None:
    """Forget it; the jobs that it made stay."""
    await here.record("delete schedule", name)
    await here.app.schedules.adelete(name)
