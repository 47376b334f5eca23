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
_URL = "url"  # the file in the storm's directory that names its database
_PATIENCE = 30.0  # seconds in which a server that was broken must take connections again
_TABLES = (
    "job", "queued", "lease", "waiting", "log", "step", "edge", "rollup", "gate", "permit",
    "gate_queue",
)  # fmt: skip


class PostgresStorage:
    """A server of our own, or the one that was named; spoken with by psycopg."""

    driver = "windlass.stores.postgres"

    def __init__(self) -> None:
        self._connections: dict[str, Connection] = {}

    def prepare(self, directory: Path, server: str | None) -> None:
        root = server or local_postgres().url
        name = f"windlass_chaos_{uuid4().hex[:12]}"
        self._run(root, lambda evidence: evidence.execute(f"CREATE DATABASE {name}"))
        (directory / _URL).write_text(_named(root, name))
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            if self._value(directory, f"SHOW {setting}") != "on":
                self.clean_up(directory)
                raise NoServerError(
                    f"the server has {setting} off: what it says is stored may be lost, "
                    "so a storm would prove nothing; turn it on"
                )
        # By the very code that the storm runs, though its files may be edited meanwhile.
        made = get_context("forkserver").Process(target=migrate, args=(self.url(directory),))
        made.start()
        made.join()
        assert made.exitcode == 0, "windlass migrate failed; it says why above"

    def clean_up(self, directory: Path) -> None:
        """Copy the tables into the directory and drop the database."""
        there = self._value(directory, "SELECT to_regclass('windlass_job')")
        for table in _TABLES if there else ():
            self._run(self.url(directory), partial(_copy, directory=directory, table=table))
        url = self.url(directory)
        self._connections.pop(url).close()
        name = urlsplit(url).path[1:]
        drop = f"DROP DATABASE {name} WITH (FORCE)"
        self._run(_named(url, "postgres"), lambda evidence: evidence.execute(drop))

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
        # Three tables hold little more than what waits or runs; when they are empty, all are seen.
        left = """SELECT (SELECT count(*) FROM windlass_queued)
                       + (SELECT count(*) FROM windlass_lease WHERE active > 0)
                       + (SELECT count(*) FROM windlass_waiting)"""
        every = """SELECT count(*) FROM windlass_job
                   WHERE state NOT IN ('succeeded', 'failed', 'canceled')"""
        return int(self._value(directory, left)) or int(self._value(directory, every))

    def completed(self, directory: Path, jobs: set[str]) -> set[str]:
        query = """SELECT id FROM windlass_job
                   WHERE id = ANY (%s) AND state IN ('succeeded', 'canceled')"""
        ids = [UUID(job) for job in jobs]
        rows = self._run(
            self.url(directory), lambda evidence: evidence.execute(query, [ids]).fetchall()
        )
        return {str(row["id"]) for row in rows}

    def is_write_blocked(self, directory: Path) -> bool:  # noqa: ARG002 - a store with one lock has to look
        """Always false: PostgreSQL has no global write lock."""
        return False

    def read(self, directory: Path) -> Tables:
        return self._run(self.url(directory), _read)

    # -- what only this store suffers

    def crash(self) -> None:
        """Crash our own server, and bring it back."""
        local_postgres().crash()

    def terminate_backends(self, directory: Path, most: int, seed: int) -> list[int]:
        """Cut off so many connections of this storm, first those that are in use; which."""
        query = """SELECT pid FROM (
                       SELECT pid FROM pg_stat_activity
                       WHERE datname = current_database() AND pid <> pg_backend_pid()
                       AND backend_type = 'client backend'
                       ORDER BY state IS NOT DISTINCT FROM 'idle', hashint4extended(pid, %s)
                       LIMIT %s
                   ) AS chosen WHERE pg_terminate_backend(pid)"""
        rows = self._run(
            self.url(directory), lambda evidence: evidence.execute(query, [seed, most]).fetchall()
        )
        return [row["pid"] for row in rows]

    # -- the connection

    def _value(self, directory: Path, query: str) -> Any:
        row = self._run(self.url(directory), lambda evidence: evidence.execute(query).fetchone())
        assert row is not None
        return next(iter(row.values()))

    def _run(self, url: str, look: Callable[[Connection], T]) -> T:
        """On a connection that is kept; after a crash of the server, on a new one."""
        psycopg = _psycopg()
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                return look(self._connection(url))
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
        raise NoServerError("the laboratory reads PostgreSQL's tables by psycopg: "
                            "pip install 'psycopg[binary]'") from None  # fmt: skip
    return psycopg


def _named(url: str, database: str) -> str:
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
