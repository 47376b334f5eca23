"""What has to be looked at to say why a job is not running: who is before it, who holds it up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from windlass.core.admission.gates import LIMIT, limit_name, limit_of, line_order
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.core.query.diagnosis import Held, Seen
from windlass.core.query.job_query import Query
from windlass.core.worker_presence import LiveWorker
from windlass.store import QueueStats, Store

BATCH = 1000  # jobs in one call
SHOWN_PARENTS = 5  # of those that a job waits for
COUNT_AHEAD = 200  # a longer queue is not gone through to count who is ahead


async def seen(store: Store, row: JobRow, workers: Sequence[LiveWorker]) -> Seen:
    """The surroundings of a job; of one that has ended, only the time."""
    if row.final:
        return Seen(now=await store.ping())
    queue = (await store.stats()).get(row.queue, QueueStats())
    queued = queue.counts.get(State.QUEUED, 0)
    return Seen(
        now=await store.ping(),
        workers=workers,
        paused=queue.paused,
        queued=queued,
        running=queue.counts.get(State.RUNNING, 0),
        ahead=await _ahead(store, row, queued) if queued <= COUNT_AHEAD else None,
        parents=await _open_parents(store, row) if row.waiting_for else (),
        held=None if row.gate is None else await _held(store, row.gate),
    )


async def _held(store: Store, gate: str) -> Held:
    [entry] = await store.get_records(LIMIT, [limit_name(gate)])
    [stats] = await store.gates([gate])
    return Held(limit=None if entry is None else limit_of(entry.value), stats=stats)


async def _open_parents(store: Store, row: JobRow) -> list[JobRow]:
    """Some of the jobs that it waits for."""
    [edges] = await store.edges([row.id])
    found: list[JobRow] = []
    for start in range(0, len(edges.parents), BATCH):
        rows = await store.get(edges.parents[start : start + BATCH])
        found += [parent for parent in rows if parent is not None and not parent.final]
        if len(found) >= SHOWN_PARENTS:
            break
    return found[:SHOWN_PARENTS]


async def _ahead(store: Store, row: JobRow, queued: int) -> int:
    """How many of the jobs in its queue are before it."""
    if row.state is not State.QUEUED:
        return 0
    seen = ahead = 0
    query = Query(states=frozenset({State.QUEUED}), queues=frozenset({row.queue}))
    while True:
        page = await store.find(query)
        ahead += sum(line_order(other) < line_order(row) for other in page.rows)
        seen += len(page.rows)
        if page.cursor is None or seen >= queued:
            return ahead
        query = replace(query, cursor=page.cursor)
