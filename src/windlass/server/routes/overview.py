"""What surrounds jobs: queues, workers, tasks, flows, numbers over time."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

from fastapi import Query

from windlass.core.clock import SECOND, Instant, from_datetime, minute_of
from windlass.core.errors import NotFoundError
from windlass.core.query.job_query import MAX_PAGE
from windlass.core.query.job_query import Query as Search
from windlass.core.sizes import MAX_NAME, check_text
from windlass.limits import Gatekeeper
from windlass.server.context import Here, Id
from windlass.server.problems import wrong
from windlass.server.remote import store_access
from windlass.server.remote.store_access import MOST_FLOWS
from windlass.server.schemas.jobs import JobNode
from windlass.server.schemas.overview import (
    By,
    FailureList,
    FlowPageView,
    FlowView,
    LimitList,
    LimitView,
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
DAY = 24 * HOUR
MAX_STEPS = 1500
PARENTS = 20  # of each job of a flow: one may have 100,000


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


async def limits(here: Here) -> LimitList:
    """The limits that are set, with how many jobs hold a slot and how many wait."""
    found = await Gatekeeper(here.client.store).list()
    return LimitList(limits=[LimitView.of(one) for one in found])


async def failures(
    here: Here,
    since: Annotated[datetime | None, Query(description="A day ago, if not given.")] = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 20,
    group: Annotated[
        str | None, Query(pattern="^[0-9a-f]{24}$", description="Only this one, with its jobs.")
    ] = None,
) -> FailureList:
    """What failed most: by task and error, of the last 2,000 jobs that failed."""
    begin = (
        await here.client.store.ping() - DAY * SECOND if since is None else _time("since", since)
    )
    caller = here.caller
    found = await here.client.failures(begin, owner=caller.owner, team=caller.team)
    return FailureList.of(found, begin, limit, group)


async def tasks(here: Here) -> TaskList:
    """The tasks that jobs can be enqueued of here, with the schemas of their arguments."""
    found = sorted(here.app.tasks, key=lambda spec: spec.name)
    return TaskList(tasks=[TaskView.of(spec) for spec in found])


async def flows(
    here: Here,
    limit: Annotated[int, Query(ge=1, le=MOST_FLOWS)] = 50,
    cursor: UUID | None = None,
) -> FlowPageView:
    """Flows, the newest first, as far as their newest 1,000 jobs tell."""
    caller = here.caller
    page = await here.client.store.newest_flows(limit, cursor, caller.owner, caller.team)
    return FlowPageView.of(page)


async def flow(
    here: Here, flow_id: Id, limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100
) -> FlowView:
    """A flow as a whole, and its newest jobs with those that each waits or waited for.

    Who sees some of its jobs only is told of these, as if there were no others.
    """
    caller, store = here.caller, here.client.store
    search = Search(flow_id=flow_id, owner=caller.owner, team=caller.team, limit=limit, bare=True)
    rows = (await store.find(search)).rows
    if not rows:
        raise NotFoundError(f"no flow {flow_id}")
    stats = await here.client.flow(flow_id, owner=caller.owner, team=caller.team)
    edges = await store.edges([row.id for row in rows], PARENTS + 1)
    own = {row.id for row in rows}
    seen = own | await store_access.seen(
        here, [id_ for one in edges for id_ in one.parents[:PARENTS] if id_ not in own]
    )
    jobs = [
        JobNode.seen(row, [id_ for id_ in one.parents[:PARENTS] if id_ in seen])
        for row, one in zip(rows, edges, strict=True)
    ]
    return FlowView.of(stats, jobs, more=any(len(one.parents) > PARENTS for one in edges))


async def stats(
    here: Here,
    since: Annotated[datetime | None, Query(description="An hour ago, if not given.")] = None,
    until: Annotated[datetime | None, Query(description="Now, if not given.")] = None,
    step: Annotated[int, Query(ge=MINUTE, multiple_of=MINUTE, description="Seconds.")] = MINUTE,
    by: Annotated[
        By | None,
        Query(description="Sum up all tasks of a queue, all queues of a task, or all of both."),
    ] = None,
) -> Stats:
    """How many attempts ended how, per queue and task, over time: for charts."""
    end = await here.client.store.ping() if until is None else _time("until", until)
    begin = minute_of(end - HOUR * SECOND if since is None else _time("since", since))
    if not 0 <= end - begin <= MAX_STEPS * step * SECOND:
        raise wrong(
            "since", f"it must lie before until, and within {MAX_STEPS:,} steps of it; widen step"
        )
    return Stats.of(begin, end, step, await here.client.store.rollups(begin, end), by)


def _time(field: str, value: datetime) -> Instant:
    if value.tzinfo is None:
        raise wrong(field, "it has no time zone; write 2026-01-31T12:00:00Z")
    return from_datetime(value)
