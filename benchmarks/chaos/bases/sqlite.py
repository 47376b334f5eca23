"""SQLite in a storm: one file. Imports no Windlass code."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from uuid import UUID

from benchmarks.chaos.bases.base import EDGES, Row, Tables, by_child, by_job, policy


class Sqlite:
    """One file, opened with Python's own SQLite."""

    driver = "windlass.stores.sqlite"

    def prepare(self, place: Path, server: str | None) -> None:
        """The directory is new, and so is the file."""

    def forget(self, place: Path) -> None:
        """All of it is in the directory."""

    def url(self, place: Path) -> str:
        return f"sqlite:///{place}/jobs.db"

    def now(self, place: Path) -> int:  # noqa: ARG002 - a store with a clock of its own is asked
        return time.time_ns() // 1000

    def ended(self, place: Path) -> int:
        query = """SELECT coalesce(sum(count), 0) FROM windlass_rollup
                   WHERE outcome IN ('succeeded', 'failed', 'canceled')"""
        return self._number(place, query) or 0

    def unfinished(self, place: Path) -> int | None:
        # Each of the three has an index of its own.
        query = """SELECT (SELECT count(*) FROM windlass_job WHERE state = 'queued')
                        + (SELECT count(*) FROM windlass_job WHERE state = 'running')
                        + (SELECT count(*) FROM windlass_job WHERE state IN ('created', 'retrying'))
                """
        return self._number(place, query)

    def over(self, place: Path, jobs: set[str]) -> set[str]:
        found = set()
        with _opened(place) as base:
            for job in jobs:
                row = base.execute(
                    "SELECT state FROM windlass_job WHERE id = ?", [UUID(job).bytes]
                ).fetchone()
                if row is not None and row[0] in {"succeeded", "canceled"}:
                    found.add(job)
        return found

    def stuck(self, place: Path) -> bool:
        with closing(sqlite3.connect(place / "jobs.db", timeout=0.3, isolation_level=None)) as base:
            try:
                base.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return True
            base.execute("ROLLBACK")
            return False

    def read(self, place: Path) -> Tables:
        with _opened(place) as base:
            counted = base.execute(
                "SELECT outcome, sum(count) FROM windlass_rollup GROUP BY outcome"
            )
            return Tables(
                jobs=[_job(row) for row in base.execute("SELECT * FROM windlass_job ORDER BY n")],
                log=by_job(base.execute("SELECT * FROM windlass_log ORDER BY n, seq")),
                steps=by_job(base.execute("SELECT * FROM windlass_step")),
                outcomes={row[0]: row[1] for row in counted},
                edges=by_child(base.execute(EDGES)),
            )

    def _number(self, place: Path, query: str) -> int | None:
        try:
            with _opened(place) as base:
                return int(base.execute(query).fetchone()[0])
        except sqlite3.OperationalError:  # not there yet
            return None


@contextmanager
def _opened(place: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(f"file:{place}/jobs.db?mode=ro", uri=True, timeout=30)) as base:
        base.row_factory = sqlite3.Row
        base.execute("BEGIN")
        yield base


def _job(row: sqlite3.Row) -> Row:
    job: Row = dict(row)
    job["id"] = str(UUID(bytes=job["id"]))
    job["policy"] = policy(job["policy"])
    return job
