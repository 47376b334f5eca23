"""What a storm is, and how large a run of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.chaos.processes import Mix

if TYPE_CHECKING:
    from benchmarks.chaos.fleet import Fleet


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How large a run is. `seconds` bounds the faults, `calm` the time without any end after them.

    With `faults`, so many are spread over the jobs: each waits until its share of the jobs has
    ended, and the producers until it has struck; so none of them hits an idle fleet. `plant` names
    a mistake to be made by every process, to see whether the storm shows it. `connections` is how
    many read streams, where there are servers.
    """

    jobs: int
    seconds: float
    seed: int
    faults: int | None = None
    workers: int = 4
    slots: int = 4
    calm: float = 120.0
    store: str = "sqlite"
    server: str | None = None  # where the store is, if it is not started here
    plant: str | None = None
    connections: int = 0
    lease: float | None = None  # instead of the storm's own: large writes take their time

    def part(self, of: float) -> Plan:
        """A smaller run of the same shape."""
        faults = None if self.faults is None else max(1, round(of * self.faults))
        connections = round(of * self.connections)
        jobs = max(10, round(of * self.jobs))
        return replace(self, jobs=jobs, faults=faults, connections=connections)


def _nothing(_: Path) -> AbstractContextManager[list[str]]:
    return nullcontext([])


@dataclass(frozen=True, slots=True, kw_only=True)
class Storm:
    """`strike` does faults, `every` so many seconds; `counts` names the one to be counted.

    `hits` is how many of these one strike does; without a name, each strike is one. `burns` says
    that attempts may be lost by jobs that are not to blame. `lost_calls` is the part of all calls
    of the store that raise, half of them after they were executed. `skew` is how many seconds the
    clock of each process may be off, ahead or behind. `around` prepares the place
    before the first process and tidies up after the last; the list that it gives holds in the end
    what it has to complain of. `only` is the one store that it is a storm of; `own_server` says
    that it breaks a server which must be our own.
    """

    name: str
    mix: Mix
    strike: Callable[[Fleet, float], None] | None = None
    counts: str = ""
    hits: int = 1
    every: float = 0.0
    lease: float = 1.5
    grace: float = 1.0
    producers: int = 2
    sweepers: int = 0
    burns: bool = True
    lost_calls: float = 0.0
    skew: float = 0.0
    only: str | None = None
    own_server: bool = False
    around: Callable[[Path], AbstractContextManager[list[str]]] = _nothing
    words: tuple[str, ...] = ()  # further words on the worker's command line
