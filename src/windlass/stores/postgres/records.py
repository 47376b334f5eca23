"""Records of the store: reads, versioned writes, and the gate checks after a changed limit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from windlass.core.admission.gates import lock_order, rank
from windlass.core.admission.limit import LIMIT, LimitSetting
from windlass.core.clock import Instant
from windlass.core.errors import StoreDeniedError
from windlass.core.versioned_record import Entry, Put, PutResult, apply_put, unexpired
from windlass.stores.postgres import rows
from windlass.stores.postgres.connection import Connection, Row
from windlass.stores.postgres.queries import SQL
from windlass.stores.postgres.writes.enqueue_jobs import lock_number


async def put_records(
    connection: Connection, puts: Sequence[Put], test_now: Instant | None
) -> list[PutResult]:
    """Store records in one transaction, limits in the common lock order of their gates."""
    results: dict[int, PutResult] = {}
    for indexes in _lock_groups([(put.kind, put.key) for put in puts]):
        chunk = await _put_records(connection, [puts[index] for index in indexes], test_now)
        results |= zip(indexes, chunk, strict=True)
    return [results[index] for index in range(len(puts))]


def _lock_groups(names: Sequence[tuple[str, str]]) -> list[list[int]]:
    """Group record indexes by lock order.

    Admission locks gates of keys, then tasks, then queues. To create a missing gate, it also locks
    the limit's record. So a transaction that holds such a record must not wait for a gate of an
    earlier kind.
    """
    groups: dict[int, list[int]] = {}
    for index, (kind, key) in enumerate(names):
        groups.setdefault(rank(key) if kind == LIMIT else -1, []).append(index)
    return [indexes for _, indexes in sorted(groups.items())]


async def _put_records(
    connection: Connection, puts: Sequence[Put], test_now: Instant | None
) -> list[PutResult]:
    """Store records under advisory locks: a record that does not exist has no row to lock."""
    keys = sorted({(put.kind, put.key) for put in puts})
    await connection.execute(SQL.lock_records, _lock_numbers(keys))
    now: Instant = await connection.fetchval(SQL.now, test_now)
    found = await connection.fetch(SQL.get_records, *rows.columns(keys))
    entries = {(record[0], record[1]): _entry(record) for record in found}
    written: dict[tuple[str, str], Row] = {}
    results = []
    for put in puts:
        result = apply_put(put, unexpired(entries.get((put.kind, put.key)), now), now)
        entry = result.entry
        if result.applied and entry is not None:
            entries[put.kind, put.key] = entry
            values = (entry.kind, entry.key, entry.value, entry.version, entry.expires_at)
            written[put.kind, put.key] = values
        results.append(result)
    limits = [row for row in written.values() if row[0] == LIMIT]
    if limits and not await connection.fetchval(SQL.may_write_records):
        await _declare_limits(connection, limits)
    elif written:
        await connection.execute(SQL.put_records, *rows.columns(written.values()))
    if written:
        await _request_gate_checks(connection, (key for kind, key in written if kind == LIMIT))
    return results


def _lock_numbers(keys: Iterable[tuple[str, str]]) -> list[int]:
    """Return the sorted lock numbers of records; creating a gate locks its limit's number."""
    return sorted({lock_number("record", *key) for key in keys})


async def _declare_limits(connection: Connection, limits: Sequence[Row]) -> None:
    """Store new declared limits with a role that must not write records."""
    for _, name, value, version, _ in limits:
        if version > 1 or LimitSetting.decode(value).override is not None:
            raise StoreDeniedError(
                f"this PostgreSQL role can declare new limits, but not change the limit {name}: "
                "change it from a worker, or with a role that may (windlass_worker)"
            )
    names, values = [row[1] for row in limits], [row[2] for row in limits]
    await connection.execute(SQL.declare_limits, names, values)


async def delete_records(connection: Connection, kind: str, keys: Sequence[str]) -> None:
    if kind != LIMIT:
        await connection.execute(SQL.delete_records, kind, list(keys))
        return
    for indexes in _lock_groups([(kind, key) for key in keys]):
        chunk = [keys[index] for index in indexes]
        await connection.execute(SQL.lock_records, _lock_numbers((kind, key) for key in chunk))
        await connection.execute(SQL.delete_records, kind, chunk)
        await _request_gate_checks(connection, chunk)


async def _request_gate_checks(connection: Connection, limits: Iterable[str]) -> None:
    """Make all gates of changed limits due for a check, in the common lock order."""
    for name in lock_order(limits):
        await connection.execute(SQL.lock_gates, name)
        await connection.execute(SQL.request_gate_checks, name)


async def get_records(
    connection: Connection, kind: str, keys: Sequence[str], test_now: Instant | None
) -> list[Entry | None]:
    now: Instant = await connection.fetchval(SQL.now, test_now)
    found = await connection.fetch(SQL.get_records, [kind] * len(keys), list(keys))
    entries = {record[1]: unexpired(_entry(record), now) for record in found}
    return [entries.get(key) for key in keys]


async def list_records(
    connection: Connection, kind: str, after: str, limit: int, now: Instant | None
) -> list[Entry]:
    found = await connection.fetch(SQL.list_records, now, kind, after, limit)
    return [_entry(record) for record in found]


def _entry(record: Row) -> Entry:
    kind, key, value, version, expires_at = tuple(record)[:5]
    return Entry(kind=kind, key=key, value=value, version=version, expires_at=expires_at)
