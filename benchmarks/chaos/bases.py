"""The stores that a storm can run on: their URL, and their raw tables. Imports no Windlass code.

All that the laboratory knows of one sort of store is here. Another one joins by an entry in BASES.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias
from uuid import UUID

Row: TypeAlias = dict[str, Any]
_DEFAULT_POLICY = {"crash_cap": 3, "max_retries": 3}  # of a job whose row names none


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """What is there: ids as text, instants in microseconds, JSON parsed.

    `log` and `steps` are by a job's number `n`; `outcomes` is how often an end was counted.
    """

    jobs: list[Row]
    log: dict[int, list[Row]]
    steps: dict[int, list[Row]]
    outcomes: dict[str, int]


class Base(Protocol):
    """`place` is the directory of the storm. Every look is one snapshot, and changes nothing."""

    driver: str  # the module that a process needs for it

    def prepare(self, place: Path) -> None:
        """See to it that there is nothing yet where the URL leads."""

    def url(self, place: Path) -> str:
        """For WINDLASS_URL."""

    def ended(self, place: Path) -> int:
        """How many jobs have ended; cheap, for it is asked many times a second."""

    def unfinished(self, place: Path) -> int | None:
        """How many have not; None while there is no table."""

    def over(self, place: Path, jobs: set[str]) -> set[str]:
        """Which of these succeeded or were canceled."""

    def stuck(self, place: Path) -> bool:
        """Whether somebody keeps all others from writing."""

    def read(self, place: Path) -> Tables: ...


class Sqlite:
    """One file, opened with Python's own SQLite."""

    driver = "windlass.stores.sqlite"

    def prepare(self, place: Path) -> None:
        """The directory is new, and so is the file."""

    def url(self, place: Path) -> str:
        return f"sqlite:///{place}/jobs.db"

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
                log=_by_job(base, "SELECT * FROM windlass_log ORDER BY n, seq"),
                steps=_by_job(base, "SELECT * FROM windlass_step"),
                outcomes={row[0]: row[1] for row in counted},
            )

    def _number(self, place: Path, query: str) -> int | None:
        try:
            with _opened(place) as base:
                return int(base.execute(query).fetchone()[0])
        except sqlite3.OperationalError:  # not there yet
            return None


BASES: dict[str, Base] = {"sqlite": Sqlite()}


@contextmanager
def _opened(place: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(f"file:{place}/jobs.db?mode=ro", uri=True, timeout=30)) as base:
        base.row_factory = sqlite3.Row
        base.execute("BEGIN")
        yield base


def _by_job(base: sqlite3.Connection, query: str) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = {}
    for values in base.execute(query):
        row: Row = dict(values)
        row["facts"] = json.loads(row.get("facts") or "{}")
        found.setdefault(row["n"], []).append(row)
    return found


def _job(row: sqlite3.Row) -> Row:
    job = dict(row)
    job["id"] = str(UUID(bytes=job["id"]))
    job["policy"] = json.loads(job["policy"]) if job["policy"] else _DEFAULT_POLICY
    return job
