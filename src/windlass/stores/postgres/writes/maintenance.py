"""Reads and deletes of the sweeper, of retention and of operators."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from windlass.core.clock import Instant
from windlass.core.decisions import maintenance
from windlass.core.decisions.transition import ApplyResult, Status
from windlass.core.job.row import JobRow
from windlass.core.job.state import FINAL
from windlass.store import Pruned, Retention
from windlass.stores.postgres import rows
from windlass.stores.postgres.connection import Connection, Row
from windlass.stores.postgres.queries import SQL
from windlass.stores.postgres.writes.batch import PostgresBatch

_PRUNE_LOCK = 0x77696E6470727565  # advisory lock number
_LOG = "log"
_GATES_PER_JOB = 10  # gate deletions per job deletion: gates are small, and each key has one


async def due(connection: Connection, limit: int, now: Instant | None) -> list[JobRow]:
    return [rows.job_row(record) for record in await connection.fetch(SQL.due, now, limit)]


async def prune(
    connection: Connection, retention: Retention, limit: int, test_now: Instant | None
) -> Pruned:
    """Delete expired data in one transaction. Claims read none of these rows."""
    found = await connection.fetchrow(SQL.try_lock_prune, _PRUNE_LOCK, test_now)
    assert found is not None
    locked, now = found
    if not locked:
        return Pruned()
    ended: list[Row] = []
    for state in FINAL:
        until = maintenance.retention_cutoff(now, getattr(retention, state.value))
        if until is not None:
            ended += await connection.fetch(SQL.past_retention, state.value, until, limit)
    deleted = await _lock_available(connection, [n for _, n in sorted(map(tuple, ended))[:limit]])
    await delete_finished(connection, sorted(deleted))
    await connection.execute(SQL.delete_stale_queued, now, limit)
    logs = await _delete_logs(connection, maintenance.retention_cutoff(now, retention.log), limit)
    expired_records: int = await connection.fetchval(SQL.delete_expired_records, now)
    until = maintenance.retention_cutoff(now, retention.rollups)
    old_rollups: int = 0
    if until is not None:
        old_rollups = await connection.fetchval(SQL.delete_old_rollups, until)
    await _delete_idle_gates(connection, _GATES_PER_JOB * limit, now)
    return Pruned(len(deleted), logs, expired_records, old_rollups)


async def _delete_idle_gates(connection: Connection, limit: int, now: Instant) -> None:
    """Delete gates without jobs. Runs last: other transactions wait for gate locks."""
    idle = await connection.fetchval(SQL.gates_to_clean, now, limit)
    if idle:
        await connection.execute(SQL.admit, idle, [], [], now)
        await connection.execute(SQL.delete_idle_gates, idle)


async def _delete_logs(connection: Connection, until: Instant | None, limit: int) -> int:
    if until is None:
        return 0
    found = await connection.fetch(SQL.past_retention, _LOG, until, limit)
    available = await _lock_available(connection, [n for _, n in found])
    if available:
        await connection.execute(SQL.delete_logs, sorted(available))
        await _remove_from_ended(connection, [(_LOG, at, n) for at, n in found if n in available])
    return len(available)


async def _lock_available(connection: Connection, numbers: Sequence[int]) -> set[int]:
    """Lock finished jobs; return those that no other transaction has locked."""
    if not numbers:
        return set()
    return {record[0] for record in await connection.fetch(SQL.lock_finished, numbers)}


async def delete_finished(connection: Connection, numbers: Sequence[int]) -> None:
    """Delete finished jobs with their logs, checkpoints and edges."""
    if not numbers:
        return
    entries: list[Row] = []
    for n, state, ended_at, logged in await connection.fetch(SQL.delete_jobs, numbers):
        entries.append((state, ended_at, n))
        if logged:
            entries.append((_LOG, ended_at, n))
    await _remove_from_ended(connection, entries)


async def _remove_from_ended(connection: Connection, entries: Sequence[Row]) -> None:
    """Remove jobs from `windlass_ended`, and rows that become empty."""
    if entries:
        kinds, instants, numbers = rows.columns(entries)
        await connection.execute(SQL.remove_from_ended, kinds, instants, numbers)
        await connection.execute(SQL.delete_empty_ended, kinds, instants)


async def delete(
    connection: Connection, ids: Sequence[UUID], owner: str | None
) -> tuple[list[ApplyResult], PostgresBatch]:
    batch = PostgresBatch(connection, 0, 0)
    await batch.load(ids, wait=True)
    results, deleted = [], set()
    for job_id in ids:
        loaded = batch.find(job_id)
        if loaded is None or owner not in {None, loaded.owner} or loaded.n in deleted:
            results.append(ApplyResult(Status.MISSING))
        elif not loaded.row.final:
            results.append(ApplyResult(Status.CONFLICT, loaded.row.state))
        else:
            deleted.add(loaded.n)
            batch.touched.append(job_id)
            results.append(ApplyResult(Status.APPLIED, loaded.row.state))
    await delete_finished(connection, sorted(deleted))
    return results, batch
