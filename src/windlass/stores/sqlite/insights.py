"""Insights of the SQLite store: counts, statistics, failures, gates, attempts and flows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias
from uuid import UUID

import apsw

from windlass.core.admission.gates import MAX_HOLDERS, GateStats
from windlass.core.clock import Instant
from windlass.core.job.attempt import Attempt, attempts_of
from windlass.core.job.failure import Failures
from windlass.core.job.flow_stats import FlowPage, FlowStats
from windlass.core.job.state import State
from windlass.core.query.job_query import Count, JobQuery
from windlass.core.versioned_record import PAUSED
from windlass.store import COUNT_CAP, COUNT_RANGE, FLOW_RANGE, QueueStats, Rollup, StoreInsights
from windlass.stores.sql.row_codecs import failures_of
from windlass.stores.sqlite import reads
from windlass.stores.sqlite.connection import fetch_all, fetch_one, fetch_value
from windlass.stores.sqlite.engine import SqliteEngine
from windlass.stores.sqlite.queries import SQL
from windlass.stores.sqlite.records import list_records

_MAX_ID = b"\xff" * 16  # greater than every id
Scope: TypeAlias = tuple[str | None, str | None]  # owner and team; None is any


class SqliteInsights(StoreInsights):
    """Each read is one call of the engine."""

    def __init__(self, engine: Callable[[], SqliteEngine]) -> None:
        self._engine = engine

    async def count(self, query: JobQuery) -> Count:
        return await self._engine().read(lambda connection: count(connection, query))

    async def stats(self) -> Mapping[str, QueueStats]:
        engine = self._engine()
        now = engine.clock.now()
        return await engine.read(lambda connection: stats(connection, now))

    async def failures(
        self, since: Instant, limit: int, owner: str | None = None, team: str | None = None
    ) -> Failures:
        return await self._engine().read(
            lambda connection: failures(connection, since, limit, (owner, team))
        )

    async def gates(self, names: Sequence[str]) -> list[GateStats]:
        if not names:
            return []
        return await self._engine().read(lambda connection: gates(connection, names))

    async def rollups(self, since: Instant, until: Instant) -> list[Rollup]:
        return await self._engine().read(lambda connection: rollups(connection, since, until))

    async def attempts(self, job_id: UUID) -> list[Attempt] | None:
        return await self._engine().read(lambda connection: attempts(connection, job_id))

    async def flows(
        self, ids: Sequence[UUID], owner: str | None = None, team: str | None = None
    ) -> list[FlowStats | None]:
        if not ids:
            return []
        return await self._engine().read(lambda connection: flows(connection, ids, (owner, team)))

    async def newest_flows(
        self,
        limit: int,
        before: UUID | None = None,
        owner: str | None = None,
        team: str | None = None,
    ) -> FlowPage:
        return await self._engine().read(
            lambda connection: newest_flows(connection, before, limit, (owner, team))
        )


def count(connection: apsw.Connection, query: JobQuery) -> Count:
    total, before = 0, reads.MAX_SERIAL
    for _ in range(COUNT_RANGE // reads.SEARCH_RANGE):
        searched = reads.search_range(connection, query, before)
        total += len(reads.matching(connection, query, searched, COUNT_CAP + 1 - total))
        if total > COUNT_CAP:
            return Count(COUNT_CAP, capped=True)
        if len(searched) < reads.SEARCH_RANGE:
            return Count(total, capped=False)
        before = searched[-1]
    return Count(total, capped=True)


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


class _Counts(defaultdict[str, dict[State, int]]):
    def __init__(self) -> None:
        super().__init__(dict)

    def put(self, queue: str, state: State, number: int) -> None:
        self[queue][state] = number


def failures(connection: apsw.Connection, since: Instant, limit: int, scope: Scope) -> Failures:
    found = fetch_all(connection, SQL.failures, (since, limit + 1))
    return failures_of([(UUID(bytes=row[0]), *row[1:]) for row in found], limit, scope)


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


def rollups(connection: apsw.Connection, since: Instant, until: Instant) -> list[Rollup]:
    return [
        Rollup(minute=m, queue=q, task=t, outcome=State(o), count=count, wait=wait, run=run)
        for m, q, t, o, count, wait, run in fetch_all(connection, SQL.rollups, (since, until))
    ]


def attempts(connection: apsw.Connection, job_id: UUID) -> list[Attempt] | None:
    row = reads.load_job(connection, SQL.get_job, (job_id.bytes,))
    if row is None:
        return None
    return attempts_of(
        row, reads.log_of(connection, SQL.attempt_rows, (row.serial, 0, reads.MAX_SERIAL))
    )


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
