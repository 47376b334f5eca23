"""Reads the observations that the diagnosis of a job needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from windlass.core.admission.gates import limit_name
from windlass.core.admission.limit import LIMIT, decode_limit
from windlass.core.admission.queue_position import queue_order
from windlass.core.diagnosis import GateStatus, Observations
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.core.query.job_query import JobQuery
from windlass.core.worker_presence import LiveWorker
from windlass.store import QueueStats, Store

BATCH = 1000  # jobs read in one call
MAX_PARENTS = 5  # unfinished parents that are listed
COUNT_AHEAD = 200  # in a longer queue, the jobs ahead are not counted


async def observe(store: Store, row: JobRow, workers: Sequence[LiveWorker]) -> Observations:
    """Read the observations of a job; of a finished one, only the time."""
    if row.final:
        return Observations(now=await store.ping())
    queue = (await store.insights.stats()).get(row.queue, QueueStats())
    queued = queue.counts.get(State.QUEUED, 0)
    return Observations(
        now=await store.ping(),
        workers=workers,
        paused=queue.paused,
        queued=queued,
        running=queue.counts.get(State.RUNNING, 0),
        ahead=await _ahead(store, row, queued) if queued <= COUNT_AHEAD else None,
        parents=await _open_parents(store, row) if row.waiting_for else (),
        gate=None if row.gate is None else await _gate_status(store, row.gate),
    )


async def _gate_status(store: Store, gate: str) -> GateStatus:
    [entry] = await store.get_records(LIMIT, [limit_name(gate)])
    [stats] = await store.insights.gates([gate])
    return GateStatus(limit=None if entry is None else decode_limit(entry.value), stats=stats)


async def _open_parents(store: Store, row: JobRow) -> list[JobRow]:
    """Return some of the unfinished parents."""
    [edges] = await store.edges([row.id])
    found: list[JobRow] = []
    for start in range(0, len(edges.parents), BATCH):
        rows = await store.get(edges.parents[start : start + BATCH])
        found += [parent for parent in rows if parent is not None and not parent.final]
        if len(found) >= MAX_PARENTS:
            break
    return found[:MAX_PARENTS]


async def _ahead(store: Store, row: JobRow, queued: int) -> int:
    """Count the jobs ahead of it in its queue."""
    if row.state is not State.QUEUED:
        return 0
    read = ahead = 0
    query = JobQuery(states=frozenset({State.QUEUED}), queues=frozenset({row.queue}))
    while True:
        page = await store.find(query)
        ahead += sum(queue_order(other) < queue_order(row) for other in page.rows)
        read += len(page.rows)
        if page.cursor is None or read >= queued:
            return ahead
        query = replace(query, cursor=page.cursor)
