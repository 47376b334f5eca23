"""Complete reads of a store, and the parts of them that two stores must agree on."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any, TypeVar
from uuid import UUID

from windlass.core.admission.queue_position import queue_order
from windlass.core.clock import Instant
from windlass.core.decisions.enqueue import EnqueueResult
from windlass.core.decisions.transition import ApplyResult
from windlass.core.event import Event
from windlass.core.job.attempt import Attempt
from windlass.core.job.dependency import Edges
from windlass.core.job.failure import FailedJob
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.core.query.job_query import JobQuery
from windlass.store import QueueStats, Rollup, Store

T = TypeVar("T")
ALL = 1000


def recent(values: Sequence[T], pick: int) -> T:
    """Return the last value for 0, the one before for 1, and so on, wrapping around."""
    return values[-1 - pick % len(values)]


def comparable(value: Any) -> Any:
    """Return the comparable parts of a value: all but serials, positions and error texts."""
    match value:
        case JobRow():
            return replace(value, serial=0, position=None if value.position is None else 0)
        case EnqueueResult():
            return value.status, value.new, comparable(value.row), type(value.error)
        case ApplyResult():
            return value.status, value.state, type(value.error)
        case list():
            return [comparable(item) for item in value]
    return value


def waiting_order(rows: Sequence[JobRow]) -> list[UUID]:
    """Return the ids of waiting jobs in the order of each queue and each gate."""
    waiting = [row for row in rows if row.state is State.QUEUED or row.gate is not None]
    waiting.sort(key=lambda row: (row.gate or "", row.queue, *queue_order(row)))
    return [row.id for row in waiting]


async def migrate(store: Store) -> None:
    await store.migrate()


async def close(store: Store) -> None:
    await store.close()


async def by_id(rows: Coroutine[Any, Any, list[JobRow]]) -> list[JobRow]:
    return sorted(await rows, key=lambda row: row.id)


async def find(store: Store, query: JobQuery) -> list[JobRow]:
    """Return the rows of all pages."""
    page = await store.find(query)
    rows = [*page.rows]
    while page.cursor is not None:
        page = await store.find(replace(query, cursor=page.cursor))
        assert len(page.rows) <= query.limit
        rows += page.rows
    return rows


async def stats(store: Store) -> dict[str, QueueStats]:
    """Return the statistics without zero counts, which a store may include or omit."""
    return {
        queue: replace(stats, counts={state: n for state, n in stats.counts.items() if n})
        for queue, stats in (await store.insights.stats()).items()
    }


async def rollups(store: Store, since: Instant, until: Instant) -> list[Rollup]:
    found = await store.insights.rollups(since, until)
    return sorted(found, key=lambda each: (each.minute, each.queue, each.task, each.outcome))


async def failures(store: Store, since: Instant, limit: int) -> list[FailedJob]:
    found = await store.insights.failures(since, limit)
    assert not found.capped
    return [*found.jobs]


async def events(
    store: Store, job_id: UUID, after: int = 0, limit: int = ALL
) -> list[Event] | None:
    """Return the events of all pages, until `ended` or an empty page."""
    events: list[Event] = []
    while (page := await store.events(job_id, after, limit)) is not None:
        assert len(page.events) <= limit
        events += page.events
        if page.ended or not page.events:
            return events
        after = events[-1].seq
    return None


async def attempts(store: Store, job_id: UUID) -> list[Attempt] | None:
    return await store.insights.attempts(job_id)


async def edges(store: Store, job_id: UUID) -> Edges:
    [found] = await store.edges([job_id])
    return found


async def tail(store: Store, job_id: UUID, after: int) -> list[Event]:
    return [event async for event in store.tail(job_id, after)]
