"""Reads of jobs, logs, counts and flows, as functions of a connection."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from uuid import UUID

from windlass.core.admission.gates import MAX_HOLDERS, GateStats
from windlass.core.clock import Instant
from windlass.core.decisions.transition import Checkpoint
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
from windlass.stores.postgres import rows
from windlass.stores.postgres.connection import Connection, Row
from windlass.stores.postgres.queries import SQL
from windlass.stores.sql.row_codecs import failures_of, log_row

SEARCH_RANGE = 5_000  # jobs that one page of a filtered search reads
_UNSUCCESSFUL = frozenset({State.FAILED, State.CANCELED})
_MAX_SERIAL = 2**63 - 1
_MAX_ID = UUID(int=2**128 - 1)  # greater than or equal to every id


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
    searched = await _search_range(connection, query, job_query.decode_cursor(query) or _MAX_SERIAL)
    matches = await _matching(connection, query, searched, query.limit + 1)
    numbers = matches[: query.limit]
    sql = SQL.jobs_by_serial_without_payload if query.omit_payload else SQL.jobs_by_serial
    found = await connection.fetch(sql, numbers) if numbers else []
    page = sorted(map(rows.job_row, found), key=attrgetter("serial"), reverse=True)
    if len(matches) > query.limit:
        last: int | None = numbers[-1]
    else:
        last = searched[-1] if len(searched) == SEARCH_RANGE else None
    return Page(page, job_query.encode_cursor(query, last) if last is not None else None)


async def count(connection: Connection, query: JobQuery) -> Count:
    total, before = 0, _MAX_SERIAL
    for _ in range(COUNT_RANGE // SEARCH_RANGE):
        searched = await _search_range(connection, query, before)
        total += len(await _matching(connection, query, searched, COUNT_CAP + 1 - total))
        if total > COUNT_CAP:
            return Count(COUNT_CAP, capped=True)
        if len(searched) < SEARCH_RANGE:
            return Count(total, capped=False)
        before = searched[-1]
    return Count(total, capped=True)


async def _search_range(connection: Connection, query: JobQuery, before: int) -> list[int]:
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


async def _matching(
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


async def stats(connection: Connection, now: Instant | None) -> Mapping[str, QueueStats]:
    counts: dict[str, dict[State, int]] = defaultdict(dict)
    oldest: dict[str, Instant | None] = {}
    for queue, state, number, since in await connection.fetch(SQL.stats, COUNT_CAP):
        counts[queue][State(state)] = number
        if since is not None:
            oldest[queue] = since
    pauses = await connection.fetch(SQL.list_records, now, PAUSED, "", COUNT_CAP)
    paused = {key for _, key, *_ in pauses}
    return {
        queue: QueueStats(
            counts={state: min(n, COUNT_CAP) for state, n in counts[queue].items()},
            capped=frozenset(state for state, n in counts[queue].items() if n > COUNT_CAP),
            oldest_queued_at=oldest.get(queue),
            paused=queue in paused,
        )
        for queue in sorted({*counts, *paused})
    }


async def failures(
    connection: Connection,
    since: Instant,
    limit: int,
    scope: tuple[str | None, str | None],
) -> Failures:
    return failures_of(await connection.fetch(SQL.failures, since, limit + 1), limit, scope)


async def rollups(connection: Connection, since: Instant, until: Instant) -> list[Rollup]:
    return [
        Rollup(minute=m, queue=q, task=t, outcome=State(o), count=count, wait=wait, run=run)
        for m, q, t, o, count, wait, run in await connection.fetch(SQL.rollups, since, until)
    ]


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


async def attempts(connection: Connection, job_id: UUID) -> list[Attempt] | None:
    found = await connection.fetchrow(SQL.attempts, job_id)
    if found is None:
        return None
    *_, past = found
    return attempts_of(rows.job_row(found), [log_row(record) for record in past])


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


async def flows(
    connection: Connection, ids: Sequence[UUID], scope: tuple[str | None, str | None]
) -> list[FlowStats | None]:
    sums: dict[UUID, list[Row]] = defaultdict(list)
    for flow_id, *states in await connection.fetch(SQL.flows, list(ids), *scope):
        sums[flow_id].append(tuple(states))
    return [FlowStats.of(id_, sums[id_]) if id_ in sums else None for id_ in ids]  # type: ignore[arg-type]


async def newest_flows(
    connection: Connection,
    before: UUID | None,
    limit: int,
    scope: tuple[str | None, str | None],
) -> FlowPage:
    page = [id_ for (id_,) in await connection.fetch(SQL.flows_before, before or _MAX_ID, limit)]
    sums: dict[UUID, list[Row]] = defaultdict(list)
    capped: dict[UUID, bool] = {}
    found = await connection.fetch(SQL.newest_of_flows, page, FLOW_RANGE, *scope)
    for flow_id, is_capped, *states in found:
        sums[flow_id].append(tuple(states))
        capped[flow_id] = is_capped
    stats = [FlowStats.of(id_, sums[id_], capped=capped[id_]) for id_ in page if id_ in sums]  # type: ignore[arg-type]
    return FlowPage(stats, page[-1] if len(page) == limit else None)


async def gates(connection: Connection, names: Sequence[str]) -> list[GateStats]:
    found = await connection.fetch(SQL.gates, list(names), COUNT_CAP, MAX_HOLDERS)
    return [
        GateStats(
            waiting=waiting,
            in_use=holding,
            holders=tuple(holders or ()),
            next_check_at=next_check_at,
        )
        for waiting, holding, holders, next_check_at in found
    ]
