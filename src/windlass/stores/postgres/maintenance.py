"""What maintenance reads and deletes."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.core.clock import Instant
from windlass.core.decisions import maintenance
from windlass.core.job.row import JobRow
from windlass.core.job.state import FINAL
from windlass.store import Pruned, Retention
from windlass.stores.postgres import rows
from windlass.stores.postgres.connection import Connection, Row
from windlass.stores.postgres.queries import SQL

_PRUNING = 0x77696E6470727565  # the number of the lock that whoever prunes holds
_LOG = "log"
_GATES = 10  # gates for each job that may be deleted: they are small, and each new key has one


async def due(connection: Connection, limit: int, now: Instant | None) -> list[JobRow]:
    return [rows.job_row(record) for record in await connection.fetch(SQL.due, now, limit)]


async def expired(connection: Connection, limit: int, now: Instant | None) -> list[JobRow]:
    return [rows.job_row(record) for record in await connection.fetch(SQL.expired, now, limit)]


async def prune(
    connection: Connection, retention: Retention, limit: int, given: Instant | None
) -> Pruned:
    """In one transaction; claims read no row that this deletes."""
    found = await connection.fetchrow(SQL.lock_upkeep, _PRUNING, given)
    assert found is not None
    alone, now = found
    if not alone:
        return Pruned()
    ended: list[Row] = []
    for state in FINAL:
        until = maintenance.kept_until(now, getattr(retention, state.value))
        if until is not None:
            ended += await connection.fetch(SQL.past_keeping, state.value, until, limit)
    gone = await _free(connection, [n for _, n in sorted(map(tuple, ended))[:limit]])
    await forget(connection, sorted(gone))
    await connection.execute(SQL.drop_line, now, limit)
    logs = await _forget_logs(connection, maintenance.kept_until(now, retention.log), limit)
    dead: int = await connection.fetchval(SQL.delete_dead_records, now)
    until = maintenance.kept_until(now, retention.rollups)
    old: int = 0
    if until is not None:
        old = await connection.fetchval(SQL.delete_old_rollups, until)
    await _drop_gates(connection, _GATES * limit, now)
    return Pruned(len(gone), logs, dead, old)


async def _drop_gates(connection: Connection, limit: int, now: Instant) -> None:
    """Where nothing is left. The last of a transaction: others wait at gates."""
    idle = await connection.fetchval(SQL.idle_gates, now, limit)
    if idle:
        await connection.execute(SQL.admit, idle, [], [], now)
        await connection.execute(SQL.drop_gates, idle)


async def _forget_logs(connection: Connection, until: Instant | None, limit: int) -> int:
    if until is None:
        return 0
    found = await connection.fetch(SQL.past_keeping, _LOG, until, limit)
    free = await _free(connection, [n for _, n in found])
    if free:
        await connection.execute(SQL.forget_logs, sorted(free))
        await _unlist(connection, [(_LOG, at, n) for at, n in found if n in free])
    return len(free)


async def _free(connection: Connection, numbers: Sequence[int]) -> set[int]:
    """Those that no open transaction of somebody's holds; now they are ours."""
    if not numbers:
        return set()
    return {record[0] for record in await connection.fetch(SQL.lock_ended, numbers)}


async def forget(connection: Connection, numbers: Sequence[int]) -> None:
    """Delete finished jobs with all they left."""
    if not numbers:
        return
    listed: list[Row] = []
    for n, state, ended_at, logged in await connection.fetch(SQL.delete_jobs, numbers):
        listed.append((state, ended_at, n))
        if logged:
            listed.append((_LOG, ended_at, n))
    await _unlist(connection, listed)


async def _unlist(connection: Connection, listed: Sequence[Row]) -> None:
    """Take jobs out of the order of ends; a row that names no job any more goes."""
    if listed:
        kinds, instants, numbers = rows.columns(listed)
        await connection.execute(SQL.unlist, kinds, instants, numbers)
        await connection.execute(SQL.drop_unlisted, kinds, instants)
