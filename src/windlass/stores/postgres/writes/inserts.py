"""New jobs as the server stores them, and jobs as it knows them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from uuid import UUID

from windlass.core.clock import Instant
from windlass.core.decisions.enqueue import Admission, Enqueued
from windlass.core.job.row import JobRow, NewJob
from windlass.core.value import pair
from windlass.stores.postgres import rows
from windlass.stores.postgres.connection import Connection, Row
from windlass.stores.postgres.queries import SQL


class Limited(Exception):  # noqa: N818 - no fault: there is another way
    """Some of these jobs have to pass a gate. Nothing was stored."""


@pair
class Stored:
    """What the server gave a new job. Whoever has to pass a gate may have passed by the end."""

    serial: int
    at: Instant
    position: int | None
    gates: tuple[str, ...]


async def insert(
    connection: Connection, values: Sequence[Row], now: Instant | None, *, gated: bool = False
) -> dict[UUID, Stored]:
    """Each job that was stored; whoever is missing met another one.

    If somebody has to pass a gate, the caller has to see to that, and says so by `gated`.
    """
    stored: dict[UUID, Stored] = {}
    first: dict[UUID, Row] = {}
    for row in values:
        first.setdefault(row[0], row)
    for piece in rows.portions(list(first.values()), rows.PAYLOAD):
        found = await connection.fetch(SQL.insert_jobs, now, *rows.insertions(piece), gated)
        for job_id, n, at, position, gates in found:
            if job_id is None:
                raise Limited
            stored[job_id] = Stored(n, at, position, tuple(gates or ()))
    return stored


async def by_id(connection: Connection, ids: Iterable[UUID]) -> dict[UUID, JobRow]:
    found = [rows.job_row(record) for record in await connection.fetch(SQL.get_jobs, list(ids))]
    return {row.id: row for row in found}


def answer_of(new: NewJob, verdict: Admission) -> Enqueued:
    return Enqueued(verdict.status, new, existing=verdict.existing, error=verdict.error)
