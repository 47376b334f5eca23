"""Insights of the PostgreSQL store: counts, statistics, failures, gates, attempts and flows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

from windlass.core.admission.gates import MAX_HOLDERS, GateStats
from windlass.core.clock import Instant
from windlass.core.job.attempt import Attempt, attempts_of
from windlass.core.job.failure import Failures
from windlass.core.job.flow_stats import FlowPage, FlowStats
from windlass.core.job.state import State
from windlass.core.query.job_query import Count, JobQuery
from windlass.core.versioned_record import PAUSED
from windlass.store import COUNT_CAP, COUNT_RANGE, FLOW_RANGE, QueueStats, Rollup, StoreInsights
from windlass.stores.postgres import reads, rows
from windlass.stores.postgres.connection import Connection, Row
from windlass.stores.postgres.engine import PostgresEngine
from windlass.stores.postgres.queries import SQL
from windlass.stores.sql.row_codecs import failures_of, log_row

_MAX_ID = UUID(int=2**128 - 1)  # greater than or equal to every id


class PostgresInsights(StoreInsights):
    """Each read is one call of the engine."""

    def __init__(self, engine: Callable[[], PostgresEngine]) -> None:
        self._engine = engine

    async def count(self, query: JobQuery) -> Count:
        return await self._engine().call(lambda c: count(c, query))

    async def stats(self) -> Mapping[str, QueueStats]:
        engine = self._engine()
        return await engine.call(lambda c: stats(c, engine.now()))

    async def failures(
        self, since: Instant, limit: int, owner: str | None = None, team: str | None = None
    ) -> Failures:
        return await self._engine().call(lambda c: failures(c, since, limit, (owner, team)))

    async def gates(self, names: Sequence[str]) -> list[GateStats]:
        if not names:
            return []
        return await self._engine().call(lambda c: gates(c, names))

    async def rollups(self, since: Instant, until: Instant) -> list[Rollup]:
        return await self._engine().call(lambda c: rollups(c, since, until))

    async def attempts(self, job_id: UUID) -> list[Attempt] | None:
        return await self._engine().call(lambda c: attempts(c, job_id))

    async def flows(
        self, ids: Sequence[UUID], owner: str | None = None, team: str | None = None
    ) -> list[FlowStats | None]:
        if not ids:
            return []
        return await self._engine().call(lambda c: flows(c, ids, (owner, team)))

    async def newest_flows(
        self,
        limit: int,
        before: UUID | None = None,
        owner: str | None = None,
        team: str | None = None,
    ) -> FlowPage:
        return await self._engine().call(lambda c: newest_flows(c, before, limit, (owner, team)))


async def count(connection: Connection, query: JobQuery) -> Count:
    total, before = 0, reads.MAX_SERIAL
    for _ in range(COUNT_RANGE // reads.SEARCH_RANGE):
        searched = await reads.search_range(connection, query, before)
        total += len(await reads.matching(connection, query, searched, COUNT_CAP + 1 - total))
        if total > COUNT_CAP:
            return Count(COUNT_CAP, capped=True)
        if len(searched) < reads.SEARCH_RANGE:
            return Count(total, capped=False)
        before = searched[-1]
    return Count(total, capped=True)


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


async def attempts(connection: Connection, job_id: UUID) -> list[Attempt] | None:
    found = await connection.fetchrow(SQL.attempts, job_id)
    if found is None:
        return None
    *_, past = found
    return attempts_of(rows.job_row(found), [log_row(record) for record in past])


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
