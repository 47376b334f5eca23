"""Inserts of new jobs, and the results of their enqueue."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from windlass.core.clock import Instant
from windlass.core.decisions.enqueue import EnqueueDecision, EnqueueResult
from windlass.core.fast_dataclass import positional_value
from windlass.core.job.new_job import NewJob
from windlass.stores.postgres import rows
from windlass.stores.postgres.connection import Connection, Row
from windlass.stores.postgres.queries import SQL


class LimitApplies(Exception):  # noqa: N818 - not an error: the caller takes another path
    """A limit applies to some of these jobs. Nothing was stored."""


@positional_value
class InsertedJob:
    """Values that the server assigned to a new job. A job with gates may be admitted later."""

    serial: int
    at: Instant
    position: int | None
    gates: tuple[str, ...]


async def insert(
    connection: Connection, values: Sequence[Row], now: Instant | None, *, gated: bool = False
) -> dict[UUID, InsertedJob]:
    """Return the jobs that were stored; a missing one exists already.

    Without `gated`, raise `LimitApplies` if a job has gates. With it, the caller must admit jobs.
    """
    inserted: dict[UUID, InsertedJob] = {}
    distinct: dict[UUID, Row] = {}
    for row in values:
        distinct.setdefault(row[rows.ID_INDEX], row)
    for chunk in rows.chunks(list(distinct.values()), rows.PAYLOAD_INDEX):
        found = await connection.fetch(SQL.insert_jobs, now, gated, *rows.insert_columns(chunk))
        for job_id, n, at, position, gates in found:
            if job_id is None:
                raise LimitApplies
            inserted[job_id] = InsertedJob(n, at, position, tuple(gates or ()))
    return inserted


def result_of(new: NewJob, decision: EnqueueDecision) -> EnqueueResult:
    return EnqueueResult(decision.status, new, existing=decision.existing, error=decision.error)
