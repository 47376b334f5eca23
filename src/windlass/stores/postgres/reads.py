"""Reads of jobs and their logs, as functions of a connection."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from uuid import UUID

from windlass.core.decisions.transition import Checkpoint
from windlass.core.job import event_log
from windlass.core.job.dependency import Edges
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.core.query import job_query
from windlass.core.query.job_query import JobQuery, Page
from windlass.store import EventPage
from windlass.stores.postgres import rows
from windlass.stores.postgres.connection import Connection, Row
from windlass.stores.postgres.queries import SQL
from windlass.stores.sql.row_codecs import log_row

SEARCH_RANGE = 5_000  # jobs that one page of a filtered search reads
_UNSUCCESSFUL = frozenset({State.FAILED, State.CANCELED})
MAX_SERIAL = 2**63 - 1


async def jobs_by_id(connection: Connection, ids: Iterable[UUID]) -> dict[UUID, JobRow]:
    found = [rows.job_row(record) for record in await connection.fetch(SQL.get_jobs, list(ids))]
    return {row.id: row for row in found}


async def get(
    connection: Connection, ids: Sequence[UUID], owner: str | None
) -> list[JobRow | None]:
    found = await jobs_by_id(connection, ids)
    visible = {job_id: row for job_id, row in found.items() if owner in {None, row.owner}}
    return [visible.get(job_id) for job_id in ids]


async def find(connection: Connection, query: JobQuery) -> Page:
    searched = await search_range(connection, query, job_query.decode_cursor(query) or MAX_SERIAL)
    matches = await matching(connection, query, searched, query.limit + 1)
    numbers = matches[: query.limit]
    sql = SQL.jobs_by_serial_without_payload if query.omit_payload else SQL.jobs_by_serial
    found = await connection.fetch(sql, numbers) if numbers else []
    page = sorted(map(rows.job_row, found), key=attrgetter("serial"), reverse=True)
    if len(matches) > query.limit:
        last: int | None = numbers[-1]
    else:
        last = searched[-1] if len(searched) == SEARCH_RANGE else None
    return Page(page, job_query.encode_cursor(query, last) if last is not None else None)


async def search_range(connection: Connection, query: JobQuery, before: int) -> list[int]:
    """Return the serials of the newest jobs before `before` that can match, by the best index."""
    unsuccessful = bool(query.states) and query.states <= _UNSUCCESSFUL
    if query.root_id is not None:
        found = await connection.fetch(SQL.lineage_range, before, SEARCH_RANGE, query.root_id)
    elif query.flow_id is not None:
        found = await connection.fetch(SQL.flow_range, before, SEARCH_RANGE, query.flow_id)
    else:
        sql = SQL.unsuccessful_range if unsuccessful else SQL.search_range
        found = await connection.fetch(sql, before, SEARCH_RANGE)
    return [n for (n,) in found]


async def matching(
    connection: Connection, query: JobQuery, searched: list[int], limit: int
) -> list[int]:
    found = await connection.fetch(SQL.matching, searched, *_filters(query), limit)
    return [n for (n,) in found]


def _filters(query: JobQuery) -> Row:
    def any_of(values: Iterable[str]) -> list[str] | None:
        return sorted(values) or None

    return (
        any_of(query.states), any_of(query.queues), any_of(query.tasks), any_of(query.tags),
        query.owner, query.team, query.worker, query.error, query.request_id,
        query.unique_key, query.retry_of, query.root_id, query.flow_id, query.created_from,
        query.created_to, None if query.text is None else job_query.lowercase_ascii(query.text),
    )  # fmt: skip


async def events(connection: Connection, job_id: UUID, after: int, limit: int) -> EventPage | None:
    after = max(after, 0)
    found = await connection.fetchrow(SQL.events, job_id, after, limit)
    if found is None:
        return None
    row = rows.job_row(found)
    *_, log_rows, past = found
    log = [log_row(record) for record in (*log_rows, *past)]
    events = event_log.page(row, log, after, limit)
    last = events[-1].seq if events else after
    return EventPage(events, row.final and last >= row.seq)


async def checkpoints(
    connection: Connection, ids: Sequence[UUID]
) -> list[Mapping[str, Checkpoint]]:
    found: dict[UUID, dict[str, Checkpoint]] = {job_id: {} for job_id in ids}
    for job_id, step, value, attempt, at in await connection.fetch(SQL.get_steps, list(ids)):
        found[job_id][step] = Checkpoint(step, value, attempt, at)
    return [dict(found[job_id]) for job_id in ids]


async def edges(connection: Connection, ids: Sequence[UUID], limit: int | None) -> list[Edges]:
    found = {
        job_id: Edges(tuple(parents), tuple(children))
        for job_id, parents, children in await connection.fetch(SQL.edges, list(ids), limit)
    }
    return [found.get(job_id) or Edges() for job_id in ids]
