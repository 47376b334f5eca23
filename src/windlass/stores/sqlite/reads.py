"""Reads of jobs and their logs, as functions of a connection inside one snapshot."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from uuid import UUID

import apsw

from windlass.core.decisions.transition import Checkpoint
from windlass.core.event import LogRow
from windlass.core.job import event_log
from windlass.core.job.dependency import Edges
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.core.query import job_query
from windlass.core.query.job_query import JobQuery, Page
from windlass.store import EventPage
from windlass.stores.sql.row_codecs import log_row
from windlass.stores.sqlite import rows
from windlass.stores.sqlite.connection import fetch_all, fetch_one, fetch_value
from windlass.stores.sqlite.queries import SQL
from windlass.stores.sqlite.rows import Row

SEARCH_RANGE = 5_000  # jobs that one page of a filtered search reads
_UNSUCCESSFUL = frozenset({State.FAILED, State.CANCELED})
MAX_SERIAL = 2**63 - 1


def load_job(
    connection: apsw.Connection, sql: str, parameters: tuple[object, ...]
) -> JobRow | None:
    row = fetch_one(connection, sql, parameters)
    return None if row is None else with_payload(connection, row)


def with_payload(connection: apsw.Connection, row: Row) -> JobRow:
    """Decode a job, and read its payload if it has its own row."""
    if not rows.needs_payload(row):
        return rows.job_row(row)
    return rows.job_row(row, fetch_value(connection, SQL.get_payload, (row[rows.N],)))


def get(connection: apsw.Connection, ids: Sequence[UUID], owner: str | None) -> list[JobRow | None]:
    jobs = (load_job(connection, SQL.get_job, (job_id.bytes,)) for job_id in ids)
    return [row if row is not None and owner in {None, row.owner} else None for row in jobs]


def find(connection: apsw.Connection, query: JobQuery) -> Page:
    searched = search_range(connection, query, job_query.decode_cursor(query) or MAX_SERIAL)
    matches = matching(connection, query, searched, query.limit + 1)
    numbers = matches[: query.limit]
    sql = SQL.jobs_by_serial_without_payload if query.omit_payload else SQL.jobs_by_serial
    found = fetch_all(connection, sql, (apsw.carray(array("q", numbers)),)) if numbers else []
    page = [
        with_payload(connection, row) for row in sorted(found, key=itemgetter(rows.N), reverse=True)
    ]
    if len(matches) > query.limit:
        last: int | None = numbers[-1]
    else:
        last = searched[-1] if len(searched) == SEARCH_RANGE else None
    return Page(page, job_query.encode_cursor(query, last) if last is not None else None)


def search_range(connection: apsw.Connection, query: JobQuery, before: int) -> list[int]:
    """Return the serials of the newest jobs before `before` that can match, by the best index."""
    unsuccessful = bool(query.states) and query.states <= _UNSUCCESSFUL
    sql = SQL.unsuccessful_range if unsuccessful else SQL.search_range
    bounds: tuple[object, ...] = (before, SEARCH_RANGE)
    if query.root_id is not None:
        sql, bounds = SQL.lineage_range, (*bounds, query.root_id.bytes)
    elif query.flow_id is not None:
        sql, bounds = SQL.flow_range, (*bounds, query.flow_id.bytes)
    return [n for (n,) in fetch_all(connection, sql, bounds)]


def matching(
    connection: apsw.Connection, query: JobQuery, numbers: list[int], limit: int
) -> list[int]:
    return [n for (n,) in fetch_all(connection, SQL.matching, _filters(query, numbers, limit))]


def _filters(query: JobQuery, numbers: list[int], limit: int) -> dict[str, object]:
    def to_json(values: Iterable[str]) -> str | None:
        items = sorted(values)
        return json.dumps(items) if items else None

    return {
        "numbers": json.dumps(numbers),
        "states": to_json(query.states),
        "queues": to_json(query.queues),
        "tasks": to_json(query.tasks),
        "tags": to_json(query.tags),
        "owner": query.owner,
        "team": query.team,
        "worker": query.worker,
        "error": query.error,
        "text": None if query.text is None else job_query.lowercase_ascii(query.text),
        "request_id": query.request_id,
        "unique_key": query.unique_key,
        "retry_of": query.retry_of.bytes if query.retry_of else None,
        "root_id": query.root_id.bytes if query.root_id else None,
        "flow_id": query.flow_id.bytes if query.flow_id else None,
        "created_from": query.created_from,
        "created_to": query.created_to,
        "limit": limit,
    }


def events(connection: apsw.Connection, job_id: UUID, after: int, limit: int) -> EventPage | None:
    row = load_job(connection, SQL.get_job, (job_id.bytes,))
    if row is None:
        return None
    after = max(after, 0)
    # The first rows of both kinds; `event_log.page` stops at the first gap in the numbers.
    recorded = log_of(connection, SQL.log_rows, (row.serial, after, limit))
    past = log_of(connection, SQL.attempt_rows, (row.serial, after, limit))
    events = event_log.page(row, [*recorded, *past], after, limit)
    last = events[-1].seq if events else after
    return EventPage(events, row.final and last >= row.seq)


def log_of(connection: apsw.Connection, sql: str, parameters: tuple[int, ...]) -> list[LogRow]:
    return [log_row(row) for row in fetch_all(connection, sql, parameters)]


def checkpoints(connection: apsw.Connection, ids: Sequence[UUID]) -> list[Mapping[str, Checkpoint]]:
    return [
        {
            step: Checkpoint(step, value, attempt, at)
            for step, value, attempt, at in fetch_all(connection, SQL.get_steps, (job_id.bytes,))
        }
        for job_id in ids
    ]


def edges(connection: apsw.Connection, ids: Sequence[UUID], limit: int | None) -> list[Edges]:
    def related(sql: str, job_id: UUID) -> tuple[UUID, ...]:
        rows = fetch_all(connection, sql, (job_id.bytes, -1 if limit is None else limit))
        return tuple(UUID(bytes=value) for (value,) in rows)

    return [Edges(related(SQL.parents_of, id_), related(SQL.children_of, id_)) for id_ in ids]
