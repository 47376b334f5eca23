"""The jobs around a job: those it depends on, those that depend on it, and on from there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from windlass.core.job.dependency import Edges
from windlass.core.job.row import JobRow
from windlass.store import Store

MOST = 200  # jobs: more than that nobody sees in a picture


@dataclass(frozen=True, slots=True)
class Graph:
    """Jobs, the nearest first, and whom of these each waits or waited for.

    If it is `capped`, more are connected with them.
    """

    rows: Sequence[JobRow]
    parents: Mapping[UUID, Sequence[UUID]]
    capped: bool


async def around(
    store: Store, job: JobRow, sees: Callable[[JobRow], bool], most: int = MOST
) -> Graph:
    """By whole steps away from the job. What is not to be seen is not passed through, either."""
    rows, edges = {job.id: job}, dict[UUID, Edges]()
    step, capped = [job.id], False
    while step:
        edges |= zip(step, await store.edges(step, most + 1), strict=True)
        beside = dict.fromkeys(
            id_ for one in step for id_ in (*edges[one].parents, *edges[one].children)
        )
        near = [id_ for id_ in beside if id_ not in rows]
        seen = [row for row in await store.get(near[:most]) if row is not None and sees(row)]
        room = most - len(rows)
        capped = capped or len(near) > most or len(seen) > room
        rows |= {row.id: row for row in seen[:room]}
        step = [row.id for row in seen[:room]]
    return Graph([*rows.values()], _parents(rows, edges), capped)


def _parents(
    rows: Mapping[UUID, JobRow], edges: Mapping[UUID, Edges]
) -> Mapping[UUID, Sequence[UUID]]:
    """Told by the child, or by the parent, if it is one of so many that the child left it out."""
    found = {id_: dict.fromkeys(edges[id_].parents) for id_ in rows}
    for parent in rows:
        for child in edges[parent].children:
            if child in found:
                found[child][parent] = None
    return {id_: [one for one in parents if one in rows] for id_, parents in found.items()}
