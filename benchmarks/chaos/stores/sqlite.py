"""SQLite in a storm: one file. Imports no Windlass code."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from uuid import UUID

from benchmarks.chaos.stores.tested_store import EDGES, Row, Tables, by_child, by_job, policy


class SqliteStorage:
    """One file, opened with Python's own SQLite."""

    driver = "windlass.stores.sqlite"

    def prepare(self, directory: Path, server: str | None) -> None:
        """The directory is new, so there is nothing to prepare."""

    def clean_up(self, directory: Path) -> None:
        """Everything is in the directory of the storm."""

    def url(self, directory: Path) -> str:
        return f"sqlite:///{directory}/jobs.db"

    def now(self, directory: Path) -> int:  # noqa: ARG002 - part of the interface
        return time.time_ns() // 1000

    def ended_count(self, directory: Path) -> int:
        query = """SELECT coalesce(sum(count), 0) FROM windlass_rollup
                   WHERE outcome IN ('succeeded', 'failed', 'canceled')"""
        return self._number(directory, query) or 0

    def unfinished_count(self, directory: Path) -> int | None:
        # Each of the three counts uses its own index.
        query = """SELECT (SELECT count(*) FROM windlass_job WHERE state = 'queued')
                        + (SELECT count(*) FROM windlass_job WHERE state = 'running')
                        + (SELECT count(*) FROM windlass_job WHERE state IN ('created', 'retrying'))
                """
        return self._number(directory, query)

    def completed(self, directory: Path, jobs: set[str]) -> set[str]:
        found = set()
        with _read_transaction(directory) as connection:
            for job in jobs:
                row = connection.execute(
                    "SELECT state FROM windlass_job WHERE id = ?", [UUID(job).bytes]
                ).fetchone()
                if row is not None and row[0] in {"succeeded", "canceled"}:
                    found.add(job)
        return found

    def is_write_blocked(self, directory: Path) -> bool:
        with closing(
            sqlite3.connect(directory / "jobs.db", timeout=0.3, isolation_level=None)
        ) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return True
            connection.execute("ROLLBACK")
            return False

    def read(self, directory: Path) -> Tables:
        with _read_transaction(directory) as connection:
            counted = connection.execute(
                "SELECT outcome, sum(count) FROM windlass_rollup GROUP BY outcome"
            )
            return Tables(
                jobs=[
                    _job(row) for row in connection.execute("SELECT * FROM windlass_job ORDER BY n")
                ],
                log=by_job(connection.execute("SELECT * FROM windlass_log ORDER BY n, seq")),
                steps=by_job(connection.execute("SELECT * FROM windlass_step")),
                outcomes={row[0]: row[1] for row in counted},
                edges=by_child(connection.execute(EDGES)),
            )

    def _number(self, directory: Path, query: str) -> int | None:
        try:
            with _read_transaction(directory) as connection:
                return int(connection.execute(query).fetchone()[0])
        except sqlite3.OperationalError:  # the file or table does not exist yet
            return None


@contextmanager
def _read_transaction(directory: Path) -> Iterator[sqlite3.Connection]:
    with closing(
        sqlite3.connect(f"file:{directory}/jobs.db?mode=ro", uri=True, timeout=30)
    ) as connection:
        connection.row_factory = sqlite3.Row
        connection.execute("BEGIN")
        yield connection


def _job(row: sqlite3.Row) -> Row:
    job: Row = dict(row)
    job["id"] = str(UUID(bytes=job["id"]))
    job["policy"] = policy(job["policy"])
    return job
