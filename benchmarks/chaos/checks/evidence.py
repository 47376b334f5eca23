"""Evidence of a storm: the ledgers, the register and the raw tables.

Imports no Windlass code.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from benchmarks.chaos import fenced_register, ledger
from benchmarks.chaos.ledger import Line
from benchmarks.chaos.stores import STORES, Row
from benchmarks.chaos.stores.tested_store import TestedStore


@dataclass(frozen=True)
class Evidence:
    """Jobs have the ids of the ledgers; `log`, `steps` and `edges` are keyed by job number `n`."""

    directory: Path
    plan: Row
    producer_lines: list[Line]
    task_lines: list[Line]
    settle_lines: list[Line]
    faults: list[Line]
    register: dict[str, list[int]]
    jobs: list[Row]
    log: dict[int, list[Row]]
    steps: dict[int, list[Row]]
    outcomes: dict[str, int]  # counted ends by outcome
    leftovers: set[str]
    now: int  # time of the store at the end of the storm
    edges: dict[int, list[Row]] = field(default_factory=dict)

    @cached_property
    def requested(self) -> dict[str, str]:
        """The task of every job that a producer or a fan-out tried to enqueue."""
        requested = {
            job: task
            for line in self.producer_lines
            if "enqueues" in line
            for job, task in zip(line["enqueues"], line["tasks"], strict=True)
        }
        numbers = {row["id"]: row["n"] for row in self.jobs if row["id"] in self.fans}
        made = [edge for n in numbers.values() for edge in self.edges.get(n, ())]
        return requested | {edge["parent_id"]: "part" for edge in made}

    @cached_property
    def fans(self) -> dict[str, int]:
        """The number of parts that each fan-out must create and wait for."""
        return {line["fans"]: line["parts"] for line in self.producer_lines if "fans" in line}

    @cached_property
    def acknowledged(self) -> list[str]:
        return [job for line in self.producer_lines for job in line.get("acknowledged", ())]

    @cached_property
    def cancels(self) -> dict[str, str | None]:
        """Every job with a cancel request, and its result if one was received."""
        requested: dict[str, str | None] = {
            line["cancels"]: None for line in self.producer_lines if "cancels" in line
        }
        return requested | {
            line["canceled"]: line["answer"] for line in self.producer_lines if "canceled" in line
        }

    @cached_property
    def settles(self) -> list[Row]:
        """The settles of workers with their results, in order of time."""
        names = ("job", "fence", "trigger", "status", "state")
        return [
            {**dict(zip(names, answer, strict=True)), "pid": line["pid"], "at": line["at"]}
            for line in self.settle_lines
            for answer in line["results"]
        ]

    @cached_property
    def runs(self) -> dict[str, list[Line]]:
        """The ledger lines of each job, in order of time."""
        found: dict[str, list[Line]] = {}
        for line in self.task_lines:
            found.setdefault(line["job"], []).append(line)
        return found

    def attempts(self, row: Row) -> list[Row]:
        """The attempts that left the job unfinished, from the log, oldest first."""
        return [line for line in self.log.get(row["n"], ()) if line["type"] == "attempt"]


def gather(directory: Path) -> Evidence:
    plan = json.loads((directory / "plan.json").read_text())
    tables = _store(plan).read(directory)
    return Evidence(
        directory=directory,
        plan=plan,
        producer_lines=ledger.read(directory, "producer"),
        task_lines=ledger.read(directory, "task"),
        settle_lines=ledger.read(directory, "settle"),
        faults=ledger.read(directory, "driver"),
        register=fenced_register.read(directory),
        jobs=tables.jobs,
        log=tables.log,
        steps=tables.steps,
        outcomes=tables.outcomes,
        leftovers=leftovers(directory, _store(plan)),
        now=_store(plan).now(directory),
        edges=tables.edges,
    )


def leftovers(directory: Path, store: TestedStore) -> set[str]:
    """The jobs that succeeded or were canceled, and still have a workspace."""
    workspaces = {path.name for path in (directory / "data").glob("*/*")}
    return store.completed(directory, workspaces) if workspaces else workspaces


def _store(plan: Row) -> TestedStore:
    return STORES[plan["store"]]
