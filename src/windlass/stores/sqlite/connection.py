"""Connections to the SQLite file: settings for durability, and migrations."""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import apsw

from windlass.core.clock import Instant
from windlass.core.errors import InvalidArgumentError, StoreUnavailableError
from windlass.stores.sql import migrations
from windlass.stores.sql.migrations import Applied
from windlass.stores.sqlite.errors import translate

Durability = Literal["full", "normal", "off"]
MIN_SQLITE = (3, 51, 3)  # older versions can corrupt a WAL that is reset during a read
BUSY_SECONDS = 30.0
CACHE_KIB = 32 * 1024
CHECKPOINT_PAGES = 4096  # 16 MiB of WAL between checkpoints: rewrites fewer pages
WAL_PAGES = 2 * CHECKPOINT_PAGES  # beyond this, a checkpoint waits for readers to reset the WAL
WAL_LIMIT = 4096 * WAL_PAGES
READER_WAIT_SECONDS = 1.0
Parameters: TypeAlias = Sequence[Any] | dict[str, Any]
MIGRATIONS = migrations.read("windlass.stores.sqlite.migrations")
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS windlass_schema (version INTEGER PRIMARY KEY, "
    "name TEXT NOT NULL, checksum TEXT NOT NULL, breaking INTEGER NOT NULL, "
    "applied_at INTEGER NOT NULL) STRICT"
)
_NOW = "CAST(unixepoch('subsec') * 1000000 AS INTEGER)"


@dataclass(frozen=True, slots=True, kw_only=True)
class SqliteConfig:
    """Path of the file, and its durability.

    durability: "full" survives power loss; "normal" may lose the last commits before a power loss,
        but does not corrupt the file; "off" is for tests
    exclusive: use one connection only; for tests of the disk
    vfs: name of a SQLite file system layer; for tests of the disk
    """

    path: str
    durability: Durability = "full"
    readers: int = 2
    exclusive: bool = False
    vfs: str | None = None
    busy_seconds: float = BUSY_SECONDS

    def __post_init__(self) -> None:
        if not self.path or self.path.startswith((":", "file:")):
            raise InvalidArgumentError(
                f"{self.path!r} is not a file path; for jobs in memory use the URL memory:"
            )
        # Connections open later, and again after a fork: the working directory may have changed.
        object.__setattr__(self, "path", str(Path(self.path).absolute()))
        if self.durability not in get_args(Durability):
            expected = ", ".join(get_args(Durability))
            raise InvalidArgumentError(f"durability is {self.durability!r}; expected {expected}")

    @property
    def wal(self) -> Path:
        return Path(os.path.realpath(self.path) + "-wal")  # SQLite creates it next to the real file


def connect(config: SqliteConfig) -> apsw.Connection:
    """Open a configured connection; creates the file if it does not exist."""
    if _version() < MIN_SQLITE:
        raise StoreUnavailableError(
            f"SQLite {apsw.sqlite_lib_version()} has a bug that can corrupt the file; "
            "Windlass requires 3.51.3 or newer: pip install -U apsw"
        )
    connection = apsw.Connection(config.path, vfs=config.vfs)
    try:
        _configure(connection, config)
    except BaseException:
        close_quietly(connection)
        raise
    return connection


def _configure(connection: apsw.Connection, config: SqliteConfig) -> None:
    connection.set_busy_handler(busy_handler(config.busy_seconds))
    # Makes plans independent of bound values: otherwise SQLite may re-prepare at each call.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    if config.exclusive:
        connection.pragma("locking_mode", "exclusive")
    _use_wal(connection, config.busy_seconds)
    connection.pragma("synchronous", config.durability)
    connection.pragma("cache_size", -CACHE_KIB)
    connection.pragma("journal_size_limit", WAL_LIMIT)
    connection.pragma("temp_store", "memory")
    connection.wal_autocheckpoint(CHECKPOINT_PAGES)


def close_quietly(connection: apsw.Connection) -> None:
    """Close and ignore errors: committed data is already in the file or its WAL.

    Otherwise the traceback of an error would keep the connection and its locks alive.
    """
    with contextlib.suppress(apsw.Error):
        connection.close(True)


def _version() -> tuple[int, ...]:
    return tuple(int(part) for part in apsw.sqlite_lib_version().split("."))


def fetch_all(
    connection: apsw.Connection, sql: str, parameters: Parameters = ()
) -> list[tuple[Any, ...]]:
    """Return all rows of a statement."""
    return connection.execute(sql, parameters).fetchall()


def fetch_one(
    connection: apsw.Connection, sql: str, parameters: Parameters = ()
) -> tuple[Any, ...] | None:
    """Return the only row of a statement; None if there is none."""
    return connection.execute(sql, parameters).fetchone()


def fetch_value(connection: apsw.Connection, sql: str, parameters: Parameters = ()) -> Any:
    """Return the only value of the only row; None if there is none."""
    row = connection.execute(sql, parameters).fetchone()
    return None if row is None else row[0]


def checkpoint(connection: apsw.Connection, pages: int, config: SqliteConfig) -> None:
    """Copy the WAL into the file, between two group commits.

    Normally copies only pages that no reader needs. Beyond WAL_PAGES it waits for readers: with
    continuous reads the WAL would otherwise grow without bound.
    """
    if pages < CHECKPOINT_PAGES:
        return
    try:
        if pages < WAL_PAGES:
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            return
        connection.set_busy_handler(busy_handler(READER_WAIT_SECONDS))
        try:
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        finally:
            connection.set_busy_handler(busy_handler(config.busy_seconds))
    except apsw.Error:
        return  # a long read, or a disk error, which the next commit reports


def busy_handler(seconds: float) -> Callable[[int], bool]:
    """Return a handler that waits for a lock in short random sleeps, so that no process starves."""
    started = 0.0

    def wait(count: int) -> bool:
        nonlocal started
        now = time.monotonic()
        if count == 0:
            started = now
        if now - started > seconds:
            return False
        time.sleep(random.uniform(0.0002, 0.0002 + min(0.004, 0.0005 * count)))  # noqa: S311
        return True

    return wait


def _use_wal(connection: apsw.Connection, seconds: float) -> None:
    """Enable WAL. Retries here, because changing the journal mode calls no busy handler."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            mode = connection.pragma("journal_mode", "wal")
        except apsw.BusyError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.005)
        else:
            if mode != "wal":
                raise StoreUnavailableError(
                    f"cannot enable write-ahead logging for {connection.filename} (journal mode is "
                    f"{mode!r}): move it to a local disk, not a network file system"
                )
            return


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
