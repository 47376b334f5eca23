"""Opening a file: the settings that the promises rest on, and the schema."""

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
MIN_SQLITE = (3, 51, 3)  # older ones can corrupt a WAL file that is reset while it is read
BUSY_SECONDS = 30.0
CACHE_KIB = 32 * 1024
CHECKPOINT_PAGES = 4096  # 16 MiB of WAL between checkpoints: fewer rewrites of the same pages
WAL_PAGES = 2 * CHECKPOINT_PAGES  # beyond this, readers are waited for so that it starts over
WAL_LIMIT = 4096 * WAL_PAGES
WAIT_FOR_READERS = 1.0
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
    """Where the file is and how it is kept.

    `durability`: "full" survives power loss; "normal" may lose the last moments before one, never
    the file; "off" is for tests. `exclusive` keeps the file to one connection and `vfs` names a
    file system layer: both for tests of the disk itself.
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
                f"{self.path!r} is not a file; for jobs in memory use the URL memory:"
            )
        # Connections open late, and again after a fork: by then the process may be elsewhere.
        object.__setattr__(self, "path", str(Path(self.path).absolute()))
        if self.durability not in get_args(Durability):
            known = ", ".join(get_args(Durability))
            raise InvalidArgumentError(f"durability is {self.durability!r}; expected {known}")

    @property
    def wal(self) -> Path:
        return Path(os.path.realpath(self.path) + "-wal")  # SQLite puts it beside the file itself


def connect(config: SqliteConfig) -> apsw.Connection:
    """A connection with every setting in place; the file is made if it is not there."""
    if _version() < MIN_SQLITE:
        raise StoreUnavailableError(
            f"SQLite {apsw.sqlite_lib_version()} has a bug that can corrupt the file; "
            "Windlass needs 3.51.3 or newer: pip install -U apsw"
        )
    connection = apsw.Connection(config.path, vfs=config.vfs)
    try:
        _set_up(connection, config)
    except BaseException:
        let_go(connection)
        raise
    return connection


def _set_up(connection: apsw.Connection, config: SqliteConfig) -> None:
    connection.set_busy_handler(patience(config.busy_seconds))
    # Plans do not depend on the values bound: else SQLite may parse a statement anew at each call.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    if config.exclusive:
        connection.pragma("locking_mode", "exclusive")
    _use_wal(connection, config.busy_seconds)
    connection.pragma("synchronous", config.durability)
    connection.pragma("cache_size", -CACHE_KIB)
    connection.pragma("journal_size_limit", WAL_LIMIT)
    connection.pragma("temp_store", "memory")
    connection.wal_autocheckpoint(CHECKPOINT_PAGES)


def let_go(connection: apsw.Connection) -> None:
    """Close, whatever the disk says: what is committed is in the file or its WAL already.

    An error's traceback would keep a connection, and its locks, for as long as anyone looks at it.
    """
    with contextlib.suppress(apsw.Error):
        connection.close(True)


def _version() -> tuple[int, ...]:
    return tuple(int(part) for part in apsw.sqlite_lib_version().split("."))


def every(
    connection: apsw.Connection, sql: str, parameters: Parameters = ()
) -> list[tuple[Any, ...]]:
    """All rows of a statement."""
    return connection.execute(sql, parameters).fetchall()


def first(
    connection: apsw.Connection, sql: str, parameters: Parameters = ()
) -> tuple[Any, ...] | None:
    """The one row of a statement that has at most one."""
    return connection.execute(sql, parameters).fetchone()


def single(connection: apsw.Connection, sql: str, parameters: Parameters = ()) -> Any:
    """The one value of that row, None without one."""
    row = connection.execute(sql, parameters).fetchone()
    return None if row is None else row[0]


def checkpoint(connection: apsw.Connection, pages: int, config: SqliteConfig) -> None:
    """Move what the WAL gathered into the file, between two groups of writes.

    Ordinarily whatever no reader still needs; past WAL_PAGES the readers are waited for, because
    where reads never pause the file would otherwise grow without end.
    """
    if pages < CHECKPOINT_PAGES:
        return
    try:
        if pages < WAL_PAGES:
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            return
        connection.set_busy_handler(patience(WAIT_FOR_READERS))
        try:
            connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        finally:
            connection.set_busy_handler(patience(config.busy_seconds))
    except apsw.Error:
        return  # a reader stayed too long, or the disk is at fault: the next commit will say


def patience(seconds: float) -> Callable[[int], bool]:
    """Wait for another process's lock in short, uneven naps, so that nobody starves."""
    since = 0.0

    def nap(count: int) -> bool:
        nonlocal since
        now = time.monotonic()
        if count == 0:
            since = now
        if now - since > seconds:
            return False
        time.sleep(random.uniform(0.0002, 0.0002 + min(0.004, 0.0005 * count)))  # noqa: S311
        return True

    return nap


def _use_wal(connection: apsw.Connection, seconds: float) -> None:
    """Changing the journal mode asks no busy handler, so ask again ourselves."""
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
                    f"{connection.filename} cannot have a write-ahead log (its journal stays "
                    f"{mode!r}); is it on a network file system?"
                )
            return


def migrate(connection: apsw.Connection, where: str, now: Instant) -> Sequence[str]:
    """Bring the schema up to date. Several processes may try at once: the write lock sorts them."""
    known = MIGRATIONS
    if not _pending(connection, where):
        return []
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute(_SCHEMA)
        todo = migrations.plan(known, _applied(connection), where)
        for migration in todo:
            connection.execute(migration.sql)
            connection.execute(
                "INSERT INTO windlass_schema (version, name, checksum, breaking, applied_at) "
                "VALUES (?, ?, ?, ?, ?)",
                (migration.version, migration.name, migration.checksum, migration.breaking, now),
            )
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # SQLite has rolled back already if the disk failed
            connection.execute("ROLLBACK")
        raise
    return [f"{migration.version:04d}_{migration.name}" for migration in todo]


def script(path: Path) -> str:
    """The SQL that opening this file would run. The file is only read, and not made."""
    todo: Sequence[migrations.Migration] = MIGRATIONS
    if path.exists():
        try:
            connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
            try:
                connection.set_busy_handler(patience(BUSY_SECONDS))
                if connection.table_exists("main", "windlass_schema"):
                    todo = migrations.plan(MIGRATIONS, _applied(connection), str(path))
            finally:
                let_go(connection)
        except apsw.Error as error:
            raise translate(error, str(path)) from error
    return migrations.script(todo, _SCHEMA, _NOW, begin="BEGIN IMMEDIATE")


def _pending(connection: apsw.Connection, where: str) -> bool:
    if not connection.table_exists("main", "windlass_schema"):
        return True
    return bool(migrations.plan(MIGRATIONS, _applied(connection), where))


def _applied(connection: apsw.Connection) -> list[Applied]:
    lines = every(connection, "SELECT version, name, checksum, breaking FROM windlass_schema")
    return [Applied(v, name, checksum, bool(breaking)) for v, name, checksum, breaking in lines]
