"""What a storm asks of its store: a URL for its processes, and the raw tables for the checker."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias
from uuid import UUID

Row: TypeAlias = dict[str, Any]
EDGES = "SELECT * FROM windlass_edge ORDER BY child, place"
_DEFAULT_POLICY = {"crash_cap": 3, "max_retries": 3}  # of a job whose row names none


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """What is there: ids as text, instants in microseconds, JSON parsed.

    `log` and `steps` are by a job's number `n`; `outcomes` is how often an end was counted; `edges`
    holds, by the number of a job, those that it waits or waited for, in their order.
    """

    jobs: list[Row]
    log: dict[int, list[Row]]
    steps: dict[int, list[Row]]
    outcomes: dict[str, int]
    edges: dict[int, list[Row]] = field(default_factory=dict)


class Base(Protocol):
    """`place` is the directory of the storm. Every look is one snapshot, and changes nothing."""

    driver: str  # the module that a process needs for it

    def prepare(self, place: Path, server: str | None) -> None:
        """See to it that there is nothing yet where the URL leads; `server` names another one."""

    def forget(self, place: Path) -> None:
        """Leave nothing outside of the directory."""

    def url(self, place: Path) -> str:
        """For WINDLASS_URL."""

    def now(self, place: Path) -> int:
        """What the clock shows that the store goes by, in microseconds."""

    def ended(self, place: Path) -> int:
        """How many jobs have ended; cheap, for it is asked many times a second."""

    def unfinished(self, place: Path) -> int | None:
        """How many have not; None while there is no table."""

    def over(self, place: Path, jobs: set[str]) -> set[str]:
        """Which of these succeeded or were canceled."""

    def stuck(self, place: Path) -> bool:
        """Whether somebody keeps all others from writing."""

    def read(self, place: Path) -> Tables: ...


def by_job(rows: Iterable[Mapping[str, Any]]) -> dict[int, list[Row]]:
    """Rows of the log, or steps, with what they say parsed."""
    found: dict[int, list[Row]] = {}
    for values in rows:
        row = dict(values)
        row["facts"] = json.loads(row.get("facts") or "{}")
        found.setdefault(row["n"], []).append(row)
    return found


def by_child(rows: Iterable[Mapping[str, Any]]) -> dict[int, list[Row]]:
    """Who waits for whom; the rows come in the order in which the parents were named."""
    found: dict[int, list[Row]] = {}
    for values in rows:
        row = dict(values)
        id_ = row["parent_id"]
        row["parent_id"] = str(id_ if isinstance(id_, UUID) else UUID(bytes=id_))
        found.setdefault(row["child"], []).append(row)
    return found


def policy(text: str | None) -> Row:
    found: Row = json.loads(text) if text else _DEFAULT_POLICY
    return found
