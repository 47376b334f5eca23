"""Records of the store: reads, versioned writes, and the gate checks after a changed limit."""

from __future__ import annotations

from collections.abc import Sequence

import apsw

from windlass.core.admission.limit import LIMIT
from windlass.core.clock import Instant
from windlass.core.versioned_record import PAUSED, Entry, Put, PutResult, apply_put, unexpired
from windlass.stores.sqlite import rows
from windlass.stores.sqlite.connection import fetch_all, fetch_one
from windlass.stores.sqlite.queries import SQL
from windlass.stores.sqlite.writes import gates
from windlass.stores.sqlite.writes.write_transaction import WriteTransaction


def _record(connection: apsw.Connection, kind: str, key: str, now: Instant) -> Entry | None:
    found = fetch_one(connection, SQL.get_record, (kind, key))
    return unexpired(rows.entry(found), now) if found is not None else None


def put_records(tx: WriteTransaction, puts: Sequence[Put]) -> list[PutResult]:
    now, results = tx.now(), []
    for put in puts:
        result = apply_put(put, _record(tx.connection, put.kind, put.key, now), now)
        entry = result.entry
        if result.applied and entry is not None:
            tx.connection.execute(
                SQL.put_record,
                (entry.kind, entry.key, entry.value, entry.version, entry.expires_at),
            )
            if put.kind == LIMIT:
                gates.limit_changed(tx, put.key)
        results.append(result)
    return results


def get_records(
    connection: apsw.Connection, kind: str, keys: Sequence[str], now: Instant
) -> list[Entry | None]:
    return [_record(connection, kind, key, now) for key in keys]


def list_records(
    connection: apsw.Connection, kind: str, after: str, limit: int, now: Instant
) -> list[Entry]:
    found = fetch_all(connection, SQL.list_records, (kind, after, now, limit))
    return [rows.entry(row) for row in found]


def delete_records(tx: WriteTransaction, kind: str, keys: Sequence[str]) -> None:
    for key in keys:
        tx.connection.execute(SQL.delete_record, (kind, key))
        if kind == LIMIT:
            gates.limit_changed(tx, key)
    if kind == PAUSED:
        tx.work = True
