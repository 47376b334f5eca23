"""Connections to the SQLite file: pragmas, lock waits, WAL checkpoints, fetch helpers."""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import apsw

from windlass.core.errors import StoreUnavailableError
from windlass.stores.sqlite.config import SqliteConfig

MIN_SQLITE = (3, 51, 3)  # older versions can corrupt a WAL that is reset during a read
CACHE_KIB = 32 * 1024
CHECKPOINT_PAGES = 4096  # 16 MiB of WAL between checkpoints: rewrites fewer pages
WAL_PAGES = 2 * CHECKPOINT_PAGES  # beyond this, a checkpoint waits for readers to reset the WAL
WAL_LIMIT = 4096 * WAL_PAGES
READER_WAIT_SECONDS = 1.0
Parameters: TypeAlias = Sequence[Any] | dict[str, Any]


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
