"""Definition of a storm, and the size of a run."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.chaos.processes.config import TaskMix

if TYPE_CHECKING:
    from benchmarks.chaos.processes.fleet import Fleet


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Size of a run. `seconds` bounds the time of the faults.

    After the faults, `quiet_timeout` bounds the time in which no job ends. With `faults`, this many
    are spread over the jobs: each waits until its share of the jobs has ended, and the producers
    wait for the fault, so none hits an idle fleet. `plant` names a bug
    that is planted in every process. `connections` is the number of stream readers.
    """

    jobs: int
    seconds: float
    seed: int
    faults: int | None = None
    workers: int = 4
    slots: int = 4
    quiet_timeout: float = 120.0
    store: str = "sqlite"
    server: str | None = None  # URL of the server, unless it is started here
    plant: str | None = None
    connections: int = 0
    lease: float | None = None  # replaces that of the storm, because large writes take long

    def scaled(self, factor: float) -> Plan:
        """Return a smaller run of the same shape."""
        faults = None if self.faults is None else max(1, round(factor * self.faults))
        connections = round(factor * self.connections)
        jobs = max(10, round(factor * self.jobs))
        return replace(self, jobs=jobs, faults=faults, connections=connections)


def _no_context(_: Path) -> AbstractContextManager[list[str]]:
    return nullcontext([])


@dataclass(frozen=True, slots=True, kw_only=True)
class Storm:
    """`inject` makes faults every `interval` seconds; `counted_fault` names the fault to count.

    `faults_per_injection` is the number of these per call; without a name, each call counts as one.
    With `may_lose_attempts`, jobs may lose attempts without a fault of their task. `lost_calls` is
    the share of store calls that raise, half of them after their execution. `skew` is the maximum
    clock error of a process in seconds. `context` prepares the directory before the first process
    and cleans up after the last; its list has the problems at the end. `only_store` restricts the
    storm to one store; `needs_own_server` requires a server started here.
    """

    name: str
    mix: TaskMix
    inject: Callable[[Fleet, float], None] | None = None
    counted_fault: str = ""
    faults_per_injection: int = 1
    interval: float = 0.0
    lease: float = 1.5
    grace: float = 1.0
    producers: int = 2
    sweepers: int = 0
    may_lose_attempts: bool = True
    lost_calls: float = 0.0
    skew: float = 0.0
    only_store: str | None = None
    needs_own_server: bool = False
    context: Callable[[Path], AbstractContextManager[list[str]]] = _no_context
    arguments: tuple[str, ...] = ()  # additional arguments of the worker command
