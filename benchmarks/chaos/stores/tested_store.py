"""Interface of a store in a storm: a URL for processes, and the raw tables for the checker."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias
from uuid import UUID

Row: TypeAlias = dict[str, Any]
EDGES = "SELECT * FROM windlass_edge ORDER BY child, ordinal"
_DEFAULT_POLICY = {"crash_cap": 3, "max_retries": 3}  # of a job without a policy in its row


@dataclass(frozen=True, slots=True, kw_only=True)
class Tables:
    """The tables: ids as text, instants in microseconds, JSON parsed.

    `log` and `steps` are keyed by job number `n`; `outcomes` counts settled attempts; `edges`
    maps a job number to its parents in their order.
    """

    jobs: list[Row]
    log: dict[int, list[Row]]
    steps: dict[int, list[Row]]
    outcomes: dict[str, int]
    edges: dict[int, list[Row]] = field(default_factory=dict)


class TestedStore(Protocol):
    """`directory` is the directory of the storm. Every read is one snapshot."""

    driver: str  # the module that a process imports for this store

    def prepare(self, directory: Path, server: str | None) -> None:
        """Create an empty database, on the server with this URL if given."""

    def clean_up(self, directory: Path) -> None:
        """Remove everything outside of the directory."""

    def url(self, directory: Path) -> str:
        """Return the value of WINDLASS_URL."""

    def now(self, directory: Path) -> int:
        """Return the store's time in microseconds."""

    def ended_count(self, directory: Path) -> int:
        """Return the number of ended jobs; cheap, because it is called many times a second."""

    def unfinished_count(self, directory: Path) -> int | None:
        """Return the number of unfinished jobs, or None before the table exists."""

    def completed(self, directory: Path, jobs: set[str]) -> set[str]:
        """Return those of the jobs that succeeded or were canceled."""

    def is_write_blocked(self, directory: Path) -> bool:
        """Whether a process blocks all other writers."""

    def read(self, directory: Path) -> Tables: ...


def by_job(rows: Iterable[Mapping[str, Any]]) -> dict[int, list[Row]]:
    """Return rows of the log, or steps, with parsed content."""
    found: dict[int, list[Row]] = {}
    for values in rows:
        row = dict(values)
        row["data"] = json.loads(row.get("data") or "{}")
        found.setdefault(row["n"], []).append(row)
    return found


def by_child(rows: Iterable[Mapping[str, Any]]) -> dict[int, list[Row]]:
    """Return the edges; the rows are in the order of the parents."""
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
