"""PostgreSQL in a storm: one database per storm on a real server. Imports no Windlass code."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from urllib.parse import urlsplit, urlunsplit
from uuid import UUID, uuid4

from benchmarks.chaos.processes.programs import migrate
from benchmarks.chaos.stores.local_postgres import NoServerError, local_postgres
from benchmarks.chaos.stores.tested_store import EDGES, Row, Tables, by_child, by_job, policy

if TYPE_CHECKING:
    import psycopg

    Connection: TypeAlias = psycopg.Connection[Row]

T = TypeVar("T")
_URL = "url"  # file in the directory of the storm, with the URL of its database
_RECONNECT_TIMEOUT = 30.0  # seconds
_TABLES = (
    "job", "queued", "lease", "waiting", "log", "step", "edge", "rollup", "gate", "permit",
    "gate_queue",
)  # fmt: skip


class PostgresStorage:
    """A database on a given or local server, read with psycopg."""

    driver = "windlass.stores.postgres"

    def __init__(self) -> None:
        self._connections: dict[str, Connection] = {}

    def prepare(self, directory: Path, server: str | None) -> None:
        root = server or local_postgres().url
        name = f"windlass_chaos_{uuid4().hex[:12]}"
        self._run(root, lambda connection: connection.execute(f"CREATE DATABASE {name}"))
        (directory / _URL).write_text(_with_database(root, name))
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            if self._value(directory, f"SHOW {setting}") != "on":
                self.clean_up(directory)
                raise NoServerError(
                    f"the server has {setting} off, so it may lose acknowledged commits; turn it on"
                )
        # The forkserver has the code that the storm runs, even if files are edited meanwhile.
        made = get_context("forkserver").Process(target=migrate, args=(self.url(directory),))
        made.start()
        made.join()
        assert made.exitcode == 0, "windlass migrate failed; see its output above"

    def clean_up(self, directory: Path) -> None:
        """Copy the tables into the directory and drop the database."""
        exists = self._value(directory, "SELECT to_regclass('windlass_job')")
        for table in _TABLES if exists else ():
            self._run(self.url(directory), partial(_copy, directory=directory, table=table))
        url = self.url(directory)
        self._connections.pop(url).close()
        name = urlsplit(url).path[1:]
        drop = f"DROP DATABASE {name} WITH (FORCE)"
        self._run(_with_database(url, "postgres"), lambda connection: connection.execute(drop))

    def url(self, directory: Path) -> str:
        return (directory / _URL).read_text()

    def now(self, directory: Path) -> int:
        query = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"
        return int(self._value(directory, query))

    def ended_count(self, directory: Path) -> int:
        query = """SELECT coalesce(sum(count), 0)::bigint FROM windlass_rollup
                   WHERE outcome IN ('succeeded', 'failed', 'canceled')"""
        return int(self._value(directory, query))

    def unfinished_count(self, directory: Path) -> int | None:
        # Three small tables have the unfinished jobs; all jobs are counted only if these are empty.
        active = """SELECT (SELECT count(*) FROM windlass_queued)
                       + (SELECT count(*) FROM windlass_lease WHERE active > 0)
                       + (SELECT count(*) FROM windlass_waiting)"""
        every = """SELECT count(*) FROM windlass_job
                   WHERE state NOT IN ('succeeded', 'failed', 'canceled')"""
        return int(self._value(directory, active)) or int(self._value(directory, every))

    def completed(self, directory: Path, jobs: set[str]) -> set[str]:
        query = """SELECT id FROM windlass_job
                   WHERE id = ANY (%s) AND state IN ('succeeded', 'canceled')"""
        ids = [UUID(job) for job in jobs]
        rows = self._run(
            self.url(directory), lambda connection: connection.execute(query, [ids]).fetchall()
        )
        return {str(row["id"]) for row in rows}

    def is_write_blocked(self, directory: Path) -> bool:  # noqa: ARG002 - part of the interface
        """Always false: PostgreSQL has no global write lock."""
        return False

    def read(self, directory: Path) -> Tables:
        return self._run(self.url(directory), _read)

    # -- faults of the server

    def crash(self) -> None:
        """Crash the local server and restart it."""
        local_postgres().crash()

    def terminate_backends(self, directory: Path, count: int, seed: int) -> list[int]:
        """Terminate `count` connections of this storm, busy ones first; return their pids."""
        query = """SELECT pid FROM (
                       SELECT pid FROM pg_stat_activity
                       WHERE datname = current_database() AND pid <> pg_backend_pid()
                       AND backend_type = 'client backend'
                       ORDER BY state IS NOT DISTINCT FROM 'idle', hashint4extended(pid, %s)
                       LIMIT %s
                   ) AS chosen WHERE pg_terminate_backend(pid)"""
        rows = self._run(
            self.url(directory),
            lambda connection: connection.execute(query, [seed, count]).fetchall(),
        )
        return [row["pid"] for row in rows]

    # -- the connection

    def _value(self, directory: Path, query: str) -> Any:
        row = self._run(
            self.url(directory), lambda connection: connection.execute(query).fetchone()
        )
        assert row is not None
        return next(iter(row.values()))

    def _run(self, url: str, query: Callable[[Connection], T]) -> T:
        """Run a query on a kept connection; after a crash of the server, on a new one."""
        psycopg = _psycopg()
        deadline = time.monotonic() + _RECONNECT_TIMEOUT
        while True:
            try:
                return query(self._connection(url))
            except psycopg.OperationalError:
                if (connection := self._connections.pop(url, None)) is not None:
                    connection.close()
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def _connection(self, url: str) -> Connection:
        if url not in self._connections:
            psycopg = _psycopg()
            made = psycopg.connect(url, autocommit=True, row_factory=psycopg.rows.dict_row)
            self._connections[url] = made
        return self._connections[url]


def _psycopg() -> Any:
    try:
        import psycopg  # noqa: PLC0415 - not for SQLite
    except ImportError:
        raise NoServerError("storms read the tables of PostgreSQL with psycopg: "
                            "pip install 'psycopg[binary]'") from None  # fmt: skip
    return psycopg


def _with_database(url: str, database: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{database}"))


def _read(connection: Connection) -> Tables:
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        counted = connection.execute(
            "SELECT outcome, sum(count)::bigint AS ends FROM windlass_rollup GROUP BY outcome"
        )
        outcomes = {row["outcome"]: row["ends"] for row in counted}
        jobs = connection.execute("SELECT * FROM windlass_job ORDER BY n").fetchall()
        return Tables(
            jobs=[row | {"id": str(row["id"]), "policy": policy(row["policy"])} for row in jobs],
            log=by_job(connection.execute("SELECT * FROM windlass_log ORDER BY n, seq")),
            steps=by_job(connection.execute("SELECT * FROM windlass_step")),
            outcomes=outcomes,
            edges=by_child(connection.execute(EDGES)),
        )


def _copy(connection: Connection, directory: Path, table: str) -> None:
    statement = f"COPY windlass_{table} TO STDOUT (FORMAT csv, HEADER)"
    with (
        (directory / f"{table}.csv").open("wb") as file,
        connection.cursor() as cursor,
        cursor.copy(statement) as data,
    ):
        for piece in data:
            file.write(piece)
