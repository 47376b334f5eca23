"""Migrations of the SQLite file: `migrate` runs them, `script` prints them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import apsw

from windlass.core.clock import Instant
from windlass.stores.sql import migrations
from windlass.stores.sql.migrations import Applied
from windlass.stores.sqlite.config import BUSY_SECONDS
from windlass.stores.sqlite.connection import busy_handler, close_quietly, fetch_all
from windlass.stores.sqlite.errors import translate

MIGRATIONS = migrations.read("windlass.stores.sqlite.migrations")
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS windlass_schema (version INTEGER PRIMARY KEY, "
    "name TEXT NOT NULL, checksum TEXT NOT NULL, breaking INTEGER NOT NULL, "
    "applied_at INTEGER NOT NULL) STRICT"
)
_NOW = "CAST(unixepoch('subsec') * 1000000 AS INTEGER)"


def migrate(connection: apsw.Connection, where: str, now: Instant) -> Sequence[str]:
    """Run pending migrations. The write lock serializes processes that try at the same time."""
    if not _pending(connection, where):
        return []
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(_SCHEMA)
        pending = migrations.plan(MIGRATIONS, _applied(connection), where)
        for migration in pending:
            connection.execute(migration.sql)
            connection.execute(
                "INSERT INTO windlass_schema (version, name, checksum, breaking, applied_at) "
                "VALUES (?, ?, ?, ?, ?)",
                (migration.version, migration.name, migration.checksum, migration.breaking, now),
            )
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # after a disk error, SQLite has rolled back already
            connection.execute("ROLLBACK")
        raise
    return [f"{migration.version:04d}_{migration.name}" for migration in pending]


def script(path: Path) -> str:
    """Return the SQL that opening this file would run. Does not create or change the file."""
    pending: Sequence[migrations.Migration] = MIGRATIONS
    if path.exists():
        try:
            connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
            try:
                connection.set_busy_handler(busy_handler(BUSY_SECONDS))
                if connection.table_exists("main", "windlass_schema"):
                    pending = migrations.plan(MIGRATIONS, _applied(connection), str(path))
            finally:
                close_quietly(connection)
        except apsw.Error as error:
            raise translate(error, str(path)) from error
    return migrations.script(pending, _SCHEMA, _NOW, begin="BEGIN IMMEDIATE")


def _pending(connection: apsw.Connection, where: str) -> bool:
    if not connection.table_exists("main", "windlass_schema"):
        return True
    return bool(migrations.plan(MIGRATIONS, _applied(connection), where))


def _applied(connection: apsw.Connection) -> list[Applied]:
    rows = fetch_all(connection, "SELECT version, name, checksum, breaking FROM windlass_schema")
    return [Applied(v, name, checksum, bool(breaking)) for v, name, checksum, breaking in rows]
