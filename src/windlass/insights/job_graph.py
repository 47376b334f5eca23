"""Dependency graph around a job: its parents and children, transitively."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from windlass.core.job.dependency import Edges
from windlass.core.job.row import JobRow
from windlass.store import Store

MAX_GRAPH_JOBS = 200  # more are not readable in a graph


@dataclass(frozen=True, slots=True)
class JobGraph:
    """Jobs, the nearest first, with their parents among these jobs; `capped` if there are more."""

    rows: Sequence[JobRow]
    parents: Mapping[UUID, Sequence[UUID]]
    capped: bool


async def job_graph(
    store: Store, job: JobRow, visible: Callable[[JobRow], bool], limit: int = MAX_GRAPH_JOBS
) -> JobGraph:
    """Read the graph breadth-first. Does not pass through jobs that are not visible."""
    rows, edges = {job.id: job}, dict[UUID, Edges]()
    step, capped = [job.id], False
    while step:
        edges |= zip(step, await store.edges(step, limit + 1), strict=True)
        neighbors = dict.fromkeys(
            id_ for job_id in step for id_ in (*edges[job_id].parents, *edges[job_id].children)
        )
        new = [id_ for id_ in neighbors if id_ not in rows]
        found = [row for row in await store.get(new[:limit]) if row is not None and visible(row)]
        left = limit - len(rows)
        capped = capped or len(new) > limit or len(found) > left
        rows |= {row.id: row for row in found[:left]}
        step = [row.id for row in found[:left]]
    return JobGraph([*rows.values()], _parents(rows, edges), capped)


def _parents(
    rows: Mapping[UUID, JobRow], edges: Mapping[UUID, Edges]
) -> Mapping[UUID, Sequence[UUID]]:
    """Merge the edges of both ends: a child with many parents may omit some."""
    found = {id_: dict.fromkeys(edges[id_].parents) for id_ in rows}
    for parent in rows:
        for child in edges[parent].children:
            if child in found:
                found[child][parent] = None
    return {id_: [parent for parent in parents if parent in rows] for id_, parents in found.items()}
