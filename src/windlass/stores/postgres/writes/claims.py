"""Claims of queued jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter

from windlass.core.clock import SECOND, Instant
from windlass.core.job.lease import DEFAULT_LEASE, Claim
from windlass.core.job.row import JobRow
from windlass.core.job.state import Trigger
from windlass.core.versioned_record import PAUSED
from windlass.stores.postgres import rows
from windlass.stores.postgres.connection import Connection, Row
from windlass.stores.postgres.queries import SQL
from windlass.stores.postgres.writes.claim_cursor import ClaimCursor, full_ranges

MAX_TRIES = 3  # of a claim that returns nothing while jobs are claimable
# Triggers that may end a job without success.
_UNSUCCESSFUL_TRIGGERS = frozenset(
    {
        Trigger.FAIL,
        Trigger.ABORT,
        Trigger.GIVE_UP,
        Trigger.CANCEL,
        Trigger.EXPIRE,
        Trigger.PARENT_CANCEL,
        Trigger.PARENT_FAIL,
    }
)


async def claim(
    connection: Connection,
    request: Claim,
    now: Instant | None,
    cursor: ClaimCursor,
    timeout: float | None = None,
) -> list[JobRow]:
    limits: dict[str, int] = {}
    for queue, limit in request.queues:
        limits[queue] = limits.get(queue, 0) + limit
    limits = {queue: limit for queue, limit in limits.items() if limit}
    await cursor.refresh(connection)
    ranges = rows.columns(cursor.ranges(list(limits)))
    found = await _claim(connection, request, now, limits, ranges, timeout=timeout)
    taken = [rows.claimed(record, request) for record in found]
    cursor.record_claim(taken)
    order = {queue: index for index, queue in enumerate(limits)}
    taken.sort(key=attrgetter("position", "id"))
    if len({(row.queue, row.priority) for row in taken}) > 1:
        taken.sort(key=lambda row: (order.get(row.queue, 0), -row.priority))
    return taken


async def _claim(
    connection: Connection,
    request: Claim,
    now: Instant | None,
    limits: Mapping[str, int],
    ranges: Sequence[Sequence[object]],
    *,
    timeout: float | None,
) -> list[Row]:
    """Claim from these ranges; retry while jobs are claimable."""
    found: list[Row] = []
    for _ in range(MAX_TRIES):
        found = await connection.fetch(
            SQL.claim,
            now,
            request.token,
            request.worker,
            None if request.lease is None else round(request.lease * SECOND),
            round(DEFAULT_LEASE * SECOND),
            list(limits),
            list(limits.values()),
            PAUSED,
            *ranges,
            timeout=timeout,
        )
        if found or not await _claimable(connection, ranges, now):
            break
    return found


async def claimable(connection: Connection, queues: Sequence[str], now: Instant | None) -> bool:
    return await _claimable(connection, rows.columns(full_ranges(queues)), now)


async def _claimable(
    connection: Connection, ranges: Sequence[Sequence[object]], now: Instant | None
) -> bool:
    found: bool = await connection.fetchval(SQL.claimable, now, PAUSED, *ranges)
    return found


# -- settling
