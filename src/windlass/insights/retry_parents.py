"""Parents of retried jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from windlass.core.codec import Codec, Purpose
from windlass.core.errors import NotFoundError
from windlass.core.job.result_reference import RESULTS, needed_parents
from windlass.core.job.row import JobRow
from windlass.store import Store

PAGE = 1000  # rows read in one call


async def current_parents(
    store: Store, codec: Codec, rows: Sequence[JobRow]
) -> list[tuple[UUID, ...]]:
    """Return the parents of each job, replaced by their newest retries.

    Omits children that the job itself created and waited for: a retry creates them again. Also
    omits pruned parents, unless the payload refers to results by their index.
    """
    parent_ids: list[tuple[UUID, ...]] = []
    for start in range(0, len(rows), PAGE):
        edges = await store.edges([row.id for row in rows[start : start + PAGE]])
        parent_ids += [each.parents for each in edges]
    found_jobs = await _with_retries(store, {id_ for ids in parent_ids for id_ in ids})
    return [
        _parents(row, ids, found_jobs, codec) for row, ids in zip(rows, parent_ids, strict=True)
    ]


def _parents(
    row: JobRow, ids: Sequence[UUID], found_jobs: Mapping[UUID, JobRow], codec: Codec
) -> tuple[UUID, ...]:
    missing = [index for index, id_ in enumerate(ids) if id_ not in found_jobs]
    if missing:
        stored = codec.decode(row.payload, Purpose.PAYLOAD)
        indexes = needed_parents(stored.get(RESULTS)) if isinstance(stored, dict) else set()
        if indexes and max(indexes) >= missing[0]:
            raise NotFoundError(
                f"job {row.id} needs the result of job {ids[missing[0]]}, which was pruned; "
                "enqueue it as a new job, or keep finished jobs longer"
            )
    kept = [found_jobs[id_] for id_ in ids if id_ in found_jobs]
    return tuple(_newest(parent, found_jobs) for parent in kept if parent.serial < row.serial)


def _newest(row: JobRow, found_jobs: Mapping[UUID, JobRow]) -> UUID:
    while row.retried_as is not None and row.retried_as in found_jobs:
        row = found_jobs[row.retried_as]
    return row.id


async def _with_retries(store: Store, wanted: Iterable[UUID]) -> dict[UUID, JobRow]:
    """Read these jobs and their retries; omit pruned ones."""
    found_jobs: dict[UUID, JobRow] = {}
    ids = list(wanted)
    while ids:
        found = await store.get(ids[:PAGE])
        ids = ids[PAGE:]
        for row in found:
            if row is not None:
                found_jobs[row.id] = row
                if row.retried_as is not None and row.retried_as not in found_jobs:
                    ids.append(row.retried_as)
    return found_jobs
