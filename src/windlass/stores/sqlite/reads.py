"""Reads of jobs, logs, counts and flows, as functions of a connection inside one snapshot."""

from __future__ import annotations

import json
from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import TypeAlias
from uuid import UUID

import apsw

from windlass.core.admission.gates import MAX_HOLDERS, GateStats
from windlass.core.clock import Instant
from windlass.core.decisions.transition import Checkpoint
from windlass.core.event import LogRow
from windlass.core.job import event_log
from windlass.core.job.attempt import Attempt, attempts_of
from windlass.core.job.dependency import Edges
from windlass.core.job.failure import Failures
from windlass.core.job.flow_stats import FlowPage, FlowStats
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.core.query import job_query
from windlass.core.query.job_query import Count, JobQuery, Page
from windlass.core.versioned_record import PAUSED
from windlass.store import COUNT_CAP, COUNT_RANGE, FLOW_RANGE, EventPage, QueueStats, Rollup
from windlass.stores.sql.row_codecs import failures_of, log_row
from windlass.stores.sqlite import rows
from windlass.stores.sqlite.connection import fetch_all, fetch_one, fetch_value
from windlass.stores.sqlite.queries import SQL
from windlass.stores.sqlite.records import list_records
from windlass.stores.sqlite.rows import Row

SEARCH_RANGE = 5_000  # jobs that one page of a filtered search reads
_UNSUCCESSFUL = frozenset({State.FAILED, State.CANCELED})
_MAX_SERIAL = 2**63 - 1
_MAX_ID = b"\xff" * 16  # greater than every id
Scope: TypeAlias = tuple[str | None, str | None]  # owner and team; None is any


def load_job(
    connection: apsw.Connection, sql: str, parameters: tuple[object, ...]
) -> JobRow | None:
    row = fetch_one(connection, sql, parameters)
    return None if row is None else with_payload(connection, row)


def with_payload(connection: apsw.Connection, row: Row) -> JobRow:
    """Decode a job, and read its payload if it has its own row."""
    if not rows.needs_payload(row):
        return rows.job_row(row)
    return rows.job_row(row, fetch_value(connection, SQL.get_payload, (row[0],)))


def get(connection: apsw.Connection, ids: Sequence[UUID], owner: str | None) -> list[JobRow | None]:
    jobs = (load_job(connection, SQL.get_job, (job_id.bytes,)) for job_id in ids)
    return [row if row is not None and owner in {None, row.owner} else None for row in jobs]


def find(connection: apsw.Connection, query: JobQuery) -> Page:
    searched = _search_range(connection, query, job_query.decode_cursor(query) or _MAX_SERIAL)
    matches = _matching(connection, query, searched, query.limit + 1)
    numbers = matches[: query.limit]
    sql = SQL.jobs_by_serial_without_payload if query.omit_payload else SQL.jobs_by_serial
    found = fetch_all(connection, sql, (apsw.carray(array("q", numbers)),)) if numbers else []
    page = [with_payload(connection, row) for row in sorted(found, key=itemgetter(0), reverse=True)]
    if len(matches) > query.limit:
        last: int | None = numbers[-1]
    else:
        last = searched[-1] if len(searched) == SEARCH_RANGE else None
    return Page(page, job_query.encode_cursor(query, last) if last is not None else None)


def count(connection: apsw.Connection, query: JobQuery) -> Count:
    total, before = 0, _MAX_SERIAL
    for _ in range(COUNT_RANGE // SEARCH_RANGE):
        searched = _search_range(connection, query, before)
        total += len(_matching(connection, query, searched, COUNT_CAP + 1 - total))
        if total > COUNT_CAP:
            return Count(COUNT_CAP, capped=True)
        if len(searched) < SEARCH_RANGE:
            return Count(total, capped=False)
        before = searched[-1]
    return Count(total, capped=True)


def _search_range(connection: apsw.Connection, query: JobQuery, before: int) -> list[int]:
    """Return the serials of the newest jobs before `before` that can match, by the best index."""
    unsuccessful = bool(query.states) and query.states <= _UNSUCCESSFUL
    sql = SQL.unsuccessful_range if unsuccessful else SQL.search_range
    bounds: tuple[object, ...] = (before, SEARCH_RANGE)
    if query.root_id is not None:
        sql, bounds = SQL.lineage_range, (*bounds, query.root_id.bytes)
    elif query.flow_id is not None:
        sql, bounds = SQL.flow_range, (*bounds, query.flow_id.bytes)
    return [n for (n,) in fetch_all(connection, sql, bounds)]


def _matching(
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


def stats(connection: apsw.Connection, now: Instant) -> Mapping[str, QueueStats]:
    counts = _Counts()
    oldest: dict[str, Instant | None] = {}
    queue = fetch_value(connection, SQL.next_queue, ("",))
    while queue is not None:
        number = fetch_value(connection, SQL.count_queued, (queue, COUNT_CAP + 1))
        counts.put(queue, State.QUEUED, number)
        oldest[queue] = fetch_value(connection, SQL.oldest_queued, (queue, COUNT_CAP))
        queue = fetch_value(connection, SQL.next_queue, (queue,))
    waiting = fetch_one(connection, SQL.next_waiting, ("", ""))
    while waiting is not None:
        number = fetch_value(connection, SQL.count_waiting, (*waiting, COUNT_CAP + 1))
        counts.put(waiting[0], State(waiting[1]), number)
        waiting = fetch_one(connection, SQL.next_waiting, waiting)
    for queue, number in fetch_all(connection, SQL.count_running):
        counts.put(queue, State.RUNNING, number)
    paused = {entry.key for entry in list_records(connection, PAUSED, "", COUNT_CAP, now)}
    return {
        queue: QueueStats(
            counts={state: min(n, COUNT_CAP) for state, n in counts[queue].items()},
            capped=frozenset(state for state, n in counts[queue].items() if n > COUNT_CAP),
            oldest_queued_at=oldest.get(queue),
            paused=queue in paused,
        )
        for queue in sorted({*counts, *paused})
    }


def failures(connection: apsw.Connection, since: Instant, limit: int, scope: Scope) -> Failures:
    found = fetch_all(connection, SQL.failures, (since, limit + 1))
    return failures_of([(UUID(bytes=row[0]), *row[1:]) for row in found], limit, scope)


class _Counts(defaultdict[str, dict[State, int]]):
    def __init__(self) -> None:
        super().__init__(dict)

    def put(self, queue: str, state: State, number: int) -> None:
        self[queue][state] = number


def rollups(connection: apsw.Connection, since: Instant, until: Instant) -> list[Rollup]:
    return [
        Rollup(minute=m, queue=q, task=t, outcome=State(o), count=count, wait=wait, run=run)
        for m, q, t, o, count, wait, run in fetch_all(connection, SQL.rollups, (since, until))
    ]


def events(connection: apsw.Connection, job_id: UUID, after: int, limit: int) -> EventPage | None:
    row = load_job(connection, SQL.get_job, (job_id.bytes,))
    if row is None:
        return None
    after = max(after, 0)
    # The first rows of both kinds; `event_log.page` stops at the first gap in the numbers.
    recorded = _log(connection, SQL.log_rows, (row.serial, after, limit))
    past = _log(connection, SQL.attempt_rows, (row.serial, after, limit))
    events = event_log.page(row, [*recorded, *past], after, limit)
    last = events[-1].seq if events else after
    return EventPage(events, row.final and last >= row.seq)


def _log(connection: apsw.Connection, sql: str, parameters: tuple[int, ...]) -> list[LogRow]:
    return [log_row(row) for row in fetch_all(connection, sql, parameters)]


def attempts(connection: apsw.Connection, job_id: UUID) -> list[Attempt] | None:
    row = load_job(connection, SQL.get_job, (job_id.bytes,))
    if row is None:
        return None
    return attempts_of(row, _log(connection, SQL.attempt_rows, (row.serial, 0, _MAX_SERIAL)))


def checkpoints(connection: apsw.Connection, ids: Sequence[UUID]) -> list[Mapping[str, Checkpoint]]:
    return [
        {
            step: Checkpoint(step, value, attempt, at)
            for step, value, attempt, at in fetch_all(connection, SQL.get_steps, (job_id.bytes,))
        }
        for job_id in ids
    ]


def gates(connection: apsw.Connection, names: Sequence[str]) -> list[GateStats]:
    gate_names = apsw.carray(tuple(names)) if names else None
    rows = fetch_all(connection, SQL.get_gates, (gate_names,))
    counts = {gate: values for gate, *values in rows}
    holders: dict[str, list[UUID]] = {}
    parameters = (gate_names, MAX_HOLDERS)
    for gate, job_id in fetch_all(connection, SQL.gate_holders, parameters) if counts else ():
        holders.setdefault(gate, []).append(UUID(bytes=job_id))
    stats = []
    for gate in names:
        holding, next_check_at = counts.get(gate, (0, None))
        waiting = fetch_value(connection, SQL.count_at_gate, (gate, COUNT_CAP))
        stats.append(
            GateStats(
                waiting=waiting,
                in_use=holding,
                holders=tuple(holders.get(gate, ())),
                next_check_at=next_check_at,
            )
        )
    return stats


# -- dependencies and flows


def edges(connection: apsw.Connection, ids: Sequence[UUID], limit: int | None) -> list[Edges]:
    def related(sql: str, job_id: UUID) -> tuple[UUID, ...]:
        rows = fetch_all(connection, sql, (job_id.bytes, -1 if limit is None else limit))
        return tuple(UUID(bytes=value) for (value,) in rows)

    return [Edges(related(SQL.parents_of, id_), related(SQL.children_of, id_)) for id_ in ids]


def flows(connection: apsw.Connection, ids: Sequence[UUID], scope: Scope) -> list[FlowStats | None]:
    return [_flow(connection, flow_id, scope) for flow_id in ids]


def _flow(connection: apsw.Connection, flow_id: UUID, scope: Scope) -> FlowStats | None:
    counts = fetch_all(connection, SQL.flow_counts, (flow_id.bytes, *scope))
    return FlowStats.of(flow_id, counts) if counts else None


def newest_flows(
    connection: apsw.Connection,
    before: UUID | None,
    limit: int,
    scope: Scope,
) -> FlowPage:
    last = _MAX_ID if before is None else before.bytes
    flows: list[FlowStats] = []
    for _ in range(limit):
        last = fetch_value(connection, SQL.flow_before, (last,))
        if last is None:
            return FlowPage(flows, None)
        counts = fetch_all(connection, SQL.newest_flow_counts, (last, FLOW_RANGE, *scope))
        if counts:
            more = fetch_value(connection, SQL.flow_exceeds, (last, FLOW_RANGE))
            flows.append(FlowStats.of(UUID(bytes=last), counts, capped=more is not None))
    return FlowPage(flows, UUID(bytes=last))
