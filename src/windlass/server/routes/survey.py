"""What surrounds jobs: queues, workers, tasks, flows, numbers over time."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import Query

from windlass.core.clock import SECOND, from_datetime, minute_of
from windlass.core.errors import NotFoundError
from windlass.core.limits import MAX_NAME, check_text
from windlass.core.query import MAX_PAGE
from windlass.core.query import Query as Search
from windlass.server.problems import wrong
from windlass.server.site import Here, Id
from windlass.server.wire.survey import (
    FlowJob,
    FlowView,
    PausedView,
    Queues,
    QueueView,
    Stats,
    TaskList,
    TaskView,
    Workers,
    WorkerView,
)

MINUTE = 60
HOUR = 60 * MINUTE
MAX_STEPS = 1500


async def queues(here: Here) -> Queues:
    """Queues that have jobs to do, are paused, or ended something in the last minutes."""
    return Queues(queues=[QueueView.of(one) for one in await here.client.queues()])


async def pause(here: Here, queue: str) -> PausedView:
    """Hand out no more jobs of a queue; what runs is left alone."""
    return await _set(here, queue, paused=True)


async def resume(here: Here, queue: str) -> PausedView:
    """Hand out jobs of a queue again."""
    return await _set(here, queue, paused=False)


async def _set(here: Here, queue: str, *, paused: bool) -> PausedView:
    check_text("the name of the queue", queue, MAX_NAME)
    await here.record("pause queue" if paused else "resume queue", queue)
    await here.client.store.pause([queue], paused=paused)
    return PausedView(name=queue, paused=paused)


async def workers(here: Here) -> Workers:
    """The workers that live."""
    return Workers(workers=[WorkerView.of(one) for one in await here.client.workers()])


async def tasks(here: Here) -> TaskList:
    """The tasks that jobs can be enqueued of here, with the schemas of their arguments."""
    found = sorted(here.app.tasks, key=lambda spec: spec.name)
    return TaskList(tasks=[TaskView.of(spec) for spec in found])


async def flow(
    here: Here, flow_id: Id, limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100
) -> FlowView:
    """A flow as a whole, and its newest jobs with those that each waits or waited for."""
    caller, store = here.caller, here.client.store
    search = Search(flow_id=flow_id, owner=caller.owner, team=caller.team, limit=limit)
    rows = (await store.find(search)).rows
    if not rows:
        raise NotFoundError(f"no flow {flow_id}")
    edges = await store.edges([row.id for row in rows])
    jobs = [FlowJob.seen(*each) for each in zip(rows, edges, strict=True)]
    return FlowView.of(await here.client.flow(flow_id), jobs)


async def stats(
    here: Here,
    since: Annotated[datetime | None, Query(description="An hour ago, if not given.")] = None,
    until: Annotated[datetime | None, Query(description="Now, if not given.")] = None,
    step: Annotated[int, Query(ge=MINUTE, multiple_of=MINUTE, description="Seconds.")] = MINUTE,
) -> Stats:
    """How many attempts ended how, per queue and task, over time: for charts."""
    for name, value in (("since", since), ("until", until)):
        if value is not None and value.tzinfo is None:
            raise wrong(name, "it has no time zone; write 2026-01-31T12:00:00Z")
    now = await here.client.store.ping()
    end = now if until is None else from_datetime(until)
    begin = minute_of(end - HOUR * SECOND if since is None else from_datetime(since))
    if not 0 <= end - begin <= MAX_STEPS * step * SECOND:
        raise wrong(
            "since", f"it must lie before until, and within {MAX_STEPS:,} steps of it; widen step"
        )
    return Stats.of(begin, end, step, await here.client.store.rollups(begin, end))
