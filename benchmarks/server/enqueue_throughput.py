"""`POST /api/jobs` compared with an empty request to the same server."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from benchmarks.server.child_process import Child, child

EMPTY, JOBS = "/empty", "/api/jobs"


@dataclass(frozen=True)
class Posting:
    """`ratio` is of rates; `by_cpu` of what one answer costs the server's process.

    On a machine that is busy with other things, the second is the steadier one.
    """

    store: str
    clients: int
    empty: float  # answers a second
    jobs: float
    empty_cpu: float  # seconds of CPU time for one answer
    jobs_cpu: float
    p50: float  # seconds
    p99: float

    @property
    def ratio(self) -> float:
        return self.jobs / self.empty

    @property
    def by_cpu(self) -> float:
        return self.empty_cpu / self.jobs_cpu


def posting(
    store: str, url: str, *, clients: tuple[int, ...], rounds: int, seconds: float
) -> list[Posting]:
    with child("host", url) as server:
        where = server.receive()
        with child("load", where["url"], where["key"]) as load:
            for path in (EMPTY, JOBS):  # everything is imported, compiled, planned
                load.ask(path=path, clients=max(clients), seconds=1)
            size = rounds, seconds
            return [_measured(server, load, store, count, size) for count in clients]


def _measured(
    server: Child, load: Child, store: str, clients: int, size: tuple[int, float]
) -> Posting:
    """The two alternate, so that both run under the same conditions."""
    rounds, seconds = size
    empty: list[dict[str, float]] = []
    jobs: list[dict[str, float]] = []
    for _ in range(rounds):
        for path, found in ((EMPTY, empty), (JOBS, jobs)):
            before = server.spent
            reported = load.ask(path=path, clients=clients, seconds=seconds)
            found.append({**reported, "cpu": (server.spent - before) / reported["answers"]})
    return Posting(
        store=store,
        clients=clients,
        empty=statistics.median(one["rate"] for one in empty),
        jobs=statistics.median(one["rate"] for one in jobs),
        empty_cpu=statistics.median(one["cpu"] for one in empty),
        jobs_cpu=statistics.median(one["cpu"] for one in jobs),
        p50=statistics.median(one["p50"] for one in jobs),
        p99=statistics.median(one["p99"] for one in jobs),
    )
