"""Whom jobs depend on when they are done again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from windlass.core.codec import Codec, Purpose
from windlass.core.errors import NotFoundError
from windlass.core.job.result_reference import RESULTS, needed
from windlass.core.job.row import JobRow
from windlass.store import Store

PAGE = 1000  # rows that are read at a time


async def parents(store: Store, codec: Codec, rows: Sequence[JobRow]) -> list[tuple[UUID, ...]]:
    """The parents of each job, or what stands for them by now: their newest retries.

    Those that it made itself, to wait for them, came after it, and it makes them anew. A parent
    that is not kept any more is left out, unless the payload names results by their places.
    """
    named: list[tuple[UUID, ...]] = []
    for start in range(0, len(rows), PAGE):
        edges = await store.edges([row.id for row in rows[start : start + PAGE]])
        named += [each.parents for each in edges]
    known = await _all(store, {id_ for ids in named for id_ in ids})
    return [_parents(row, ids, known, codec) for row, ids in zip(rows, named, strict=True)]


def _parents(
    row: JobRow, ids: Sequence[UUID], known: Mapping[UUID, JobRow], codec: Codec
) -> tuple[UUID, ...]:
    gone = [place for place, id_ in enumerate(ids) if id_ not in known]
    if gone:
        stored = codec.decode(row.payload, Purpose.PAYLOAD)
        later = needed(stored.get(RESULTS)) if isinstance(stored, dict) else set()
        if later and max(later) >= gone[0]:
            raise NotFoundError(
                f"job {row.id} needs the result of job {ids[gone[0]]}, which is not kept any more; "
                "keep finished jobs for longer, or enqueue it anew"
            )
    there = [known[id_] for id_ in ids if id_ in known]
    return tuple(_newest(parent, known) for parent in there if parent.serial < row.serial)


def _newest(row: JobRow, known: Mapping[UUID, JobRow]) -> UUID:
    while row.retried_as is not None and row.retried_as in known:
        row = known[row.retried_as]
    return row.id


async def _all(store: Store, wanted: Iterable[UUID]) -> dict[UUID, JobRow]:
    """These jobs, as far as they are kept, and their retries."""
    known: dict[UUID, JobRow] = {}
    ids = list(wanted)
    while ids:
        found = await store.get(ids[:PAGE])
        ids = ids[PAGE:]
        for row in found:
            if row is not None:
                known[row.id] = row
                if row.retried_as is not None and row.retried_as not in known:
                    ids.append(row.retried_as)
    return known
