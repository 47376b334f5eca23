"""All that is known about a storm: the ledgers, the register and the raw tables.

Imports no Windlass code, and opens the file read-only with Python's own SQLite.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias
from uuid import UUID

from benchmarks.chaos import ledger, register
from benchmarks.chaos.ledger import Line

Row: TypeAlias = dict[str, Any]
_FINAL = ("succeeded", "failed", "canceled")
_OVER = ("succeeded", "canceled")


@dataclass(frozen=True)
class Evidence:
    """Jobs are named as the ledgers name them; `log` and `steps` are by a job's number `n`."""

    place: Path
    plan: Row
    produced: list[Line]
    ran: list[Line]
    faults: list[Line]
    register: dict[str, list[int]]
    jobs: list[Row]
    log: dict[int, list[Row]]
    steps: dict[int, list[Row]]
    outcomes: dict[str, int]  # how often an end was counted, by kind
    leftovers: set[str]

    @cached_property
    def asked(self) -> dict[str, str]:
        """Every job that a producer meant to enqueue, and its task."""
        return {
            job: task
            for line in self.produced
            if "asks" in line
            for job, task in zip(line["asks"], line["tasks"], strict=True)
        }

    @cached_property
    def acknowledged(self) -> list[str]:
        return [job for line in self.produced for job in line.get("answered", ())]

    @cached_property
    def cancels(self) -> dict[str, str | None]:
        """Every job whose cancel was asked for, and the answer if there was one."""
        asked: dict[str, str | None] = {
            line["cancels"]: None for line in self.produced if "cancels" in line
        }
        return asked | {
            line["canceled"]: line["answer"] for line in self.produced if "canceled" in line
        }

    @cached_property
    def runs(self) -> dict[str, list[Line]]:
        """What the attempts of each job wrote, in order of time."""
        found: dict[str, list[Line]] = {}
        for line in self.ran:
            found.setdefault(line["job"], []).append(line)
        return found

    def attempts(self, row: Row) -> list[Row]:
        """The attempts that left the job unfinished, from the log, oldest first."""
        return [line for line in self.log.get(row["n"], ()) if line["type"] == "attempt"]


def gather(place: Path) -> Evidence:
    with _opened(place) as base:
        return Evidence(
            place=place,
            plan=json.loads((place / "plan.json").read_text()),
            produced=ledger.read(place, "producer"),
            ran=ledger.read(place, "task"),
            faults=ledger.read(place, "driver"),
            register=register.read(place),
            jobs=[_job(row) for row in base.execute("SELECT * FROM windlass_job ORDER BY n")],
            log=_by_job(base, "SELECT * FROM windlass_log ORDER BY n, seq"),
            steps=_by_job(base, "SELECT * FROM windlass_step"),
            outcomes={
                row[0]: row[1]
                for row in base.execute(
                    "SELECT outcome, sum(count) FROM windlass_rollup GROUP BY outcome"
                )
            },
            leftovers=leftovers(place),
        )


def unfinished(place: Path) -> int | None:
    """How many jobs have not ended; None while there is no table."""
    try:
        with _opened(place) as base:
            marks = ", ".join("?" * len(_FINAL))
            query = f"SELECT count(*) FROM windlass_job WHERE state NOT IN ({marks})"
            return int(base.execute(query, _FINAL).fetchone()[0])
    except sqlite3.OperationalError:
        return None


def leftovers(place: Path) -> set[str]:
    """The jobs that succeeded or were canceled, and whose workspace is still there."""
    there = {path.name for path in (place / "data").glob("*/*")}
    if not there:
        return there
    with _opened(place) as base:
        over = base.execute("SELECT id FROM windlass_job WHERE state IN (?, ?)", _OVER)
        return there & {str(UUID(bytes=row[0])) for row in over}


@contextmanager
def _opened(place: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(f"file:{place}/jobs.db?mode=ro", uri=True, timeout=30)) as base:
        base.row_factory = sqlite3.Row
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
    job["policy"] = (
        json.loads(job["policy"]) if job["policy"] else {"crash_cap": 3, "max_retries": 3}
    )
    return job
