"""Maintenance of the SQLite store: due jobs, expired leases, deletion of jobs."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import apsw

from windlass.core.clock import Instant
from windlass.core.decisions import maintenance
from windlass.core.decisions.transition import ApplyResult, Status
from windlass.core.job.row import JobRow
from windlass.core.job.state import FINAL
from windlass.store import Pruned, Retention
from windlass.stores.sqlite.connection import fetch_all
from windlass.stores.sqlite.queries import SQL
from windlass.stores.sqlite.reads import load_job, with_payload
from windlass.stores.sqlite.rows import N
from windlass.stores.sqlite.writes import gates
from windlass.stores.sqlite.writes.write_transaction import WriteTransaction


def due(connection: apsw.Connection, now: Instant, limit: int) -> list[JobRow]:
    expired = fetch_all(connection, SQL.expired, (now, limit))
    heads = gates.due(connection, now, limit)
    seen = {row[N] for row in heads}
    found = fetch_all(connection, SQL.due, {"now": now, "limit": limit})
    waiting = [*heads, *(row for row in found if row[N] not in seen)]
    return [with_payload(connection, row) for row in (*expired, *waiting[:limit])]


def prune(tx: WriteTransaction, retention: Retention, limit: int) -> Pruned:
    now, connection = tx.now(), tx.connection
    expired: list[tuple[Instant, int]] = []
    for state in FINAL:
        cutoff = maintenance.retention_cutoff(now, getattr(retention, state.value))
        if cutoff is not None:
            found = fetch_all(connection, SQL.past_retention, (state.value, cutoff, limit))
            expired += [(ended, n) for n, ended in found]
    expired = sorted(expired)[:limit]
    for _, n in expired:
        delete_job(tx, n)
    cutoff = maintenance.retention_cutoff(now, retention.log)
    logs: list[int] = []
    if cutoff is not None:
        logs = [n for (n,) in fetch_all(connection, SQL.logs_past_retention, (cutoff, limit))]
        for n in logs:
            connection.execute(SQL.delete_log, (n,))
            connection.execute(SQL.mark_log_deleted, (n,))
    expired_records = _delete(connection, SQL.delete_expired_records, now)
    gates.clean_up(connection, now, limit)
    cutoff = maintenance.retention_cutoff(now, retention.rollups)
    rollups = 0 if cutoff is None else _delete(connection, SQL.delete_old_rollups, cutoff)
    return Pruned(len(expired), len(logs), expired_records, rollups)


def _delete(connection: apsw.Connection, sql: str, instant: Instant) -> int:
    connection.execute(sql, (instant,))
    return connection.changes()


def delete(tx: WriteTransaction, ids: Sequence[UUID], owner: str | None) -> list[ApplyResult]:
    results = []
    for job_id in ids:
        row = load_job(tx.connection, SQL.get_job, (job_id.bytes,))
        if row is None or owner not in {None, row.owner}:
            results.append(ApplyResult(Status.MISSING))
        elif not row.final:
            results.append(ApplyResult(Status.CONFLICT, row.state))
        else:
            delete_job(tx, row.serial)
            results.append(ApplyResult(Status.APPLIED, row.state))
    return results


def delete_job(tx: WriteTransaction, n: int) -> None:
    tx.save_serial()
    for sql in (
        SQL.delete_log, SQL.delete_steps, SQL.delete_edges, SQL.delete_payload, SQL.delete_job,
    ):  # fmt: skip
        tx.connection.execute(sql, (n,))
