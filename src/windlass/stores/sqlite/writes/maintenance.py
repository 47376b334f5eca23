"""Maintenance of the SQLite store: due jobs, expired leases, deletion past retention."""

from __future__ import annotations

import apsw

from windlass.core.clock import Instant
from windlass.core.decisions import maintenance
from windlass.core.job.row import JobRow
from windlass.core.job.state import FINAL
from windlass.store import Pruned, Retention
from windlass.stores.sqlite.connection import fetch_all
from windlass.stores.sqlite.queries import SQL
from windlass.stores.sqlite.reads import with_payload
from windlass.stores.sqlite.rows import N
from windlass.stores.sqlite.writes import gates
from windlass.stores.sqlite.writes.jobs import delete_job
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
