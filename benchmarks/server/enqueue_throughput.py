"""`POST /api/jobs` compared with an empty request to the same server."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from benchmarks.server.child_process import ChildProcess, start_child

EMPTY_PATH, JOBS_PATH = "/empty", "/api/jobs"


@dataclass(frozen=True)
class EnqueueThroughput:
    """`ratio` compares rates; `by_cpu` compares the CPU time of the server per response.

    On a busy machine, the second is more stable.
    """

    store: str
    clients: int
    empty: float  # responses per second
    jobs: float
    empty_cpu: float  # seconds of CPU time per response
    jobs_cpu: float
    p50: float  # seconds
    p99: float

    @property
    def ratio(self) -> float:
        return self.jobs / self.empty

    @property
    def by_cpu(self) -> float:
        return self.empty_cpu / self.jobs_cpu


def measure_enqueues(
    store: str, url: str, *, clients: tuple[int, ...], rounds: int, seconds: float
) -> list[EnqueueThroughput]:
    with start_child("measured_server", url) as server:
        address = server.receive()
        with start_child("load_client", address["url"], address["key"]) as load:
            for path in (EMPTY_PATH, JOBS_PATH):  # warm-up
                load.call(path=path, clients=max(clients), seconds=1)
            size = rounds, seconds
            return [_measured(server, load, store, count, size) for count in clients]


def _measured(
    server: ChildProcess, load: ChildProcess, store: str, clients: int, size: tuple[int, float]
) -> EnqueueThroughput:
    """The two alternate, so that both run under the same conditions."""
    rounds, seconds = size
    empty: list[dict[str, float]] = []
    jobs: list[dict[str, float]] = []
    for _ in range(rounds):
        for path, found in ((EMPTY_PATH, empty), (JOBS_PATH, jobs)):
            before = server.cpu_seconds
            reported = load.call(path=path, clients=clients, seconds=seconds)
            found.append({**reported, "cpu": (server.cpu_seconds - before) / reported["answers"]})
    return EnqueueThroughput(
        store=store,
        clients=clients,
        empty=statistics.median(result["rate"] for result in empty),
        jobs=statistics.median(result["rate"] for result in jobs),
        empty_cpu=statistics.median(result["cpu"] for result in empty),
        jobs_cpu=statistics.median(result["cpu"] for result in jobs),
        p50=statistics.median(result["p50"] for result in jobs),
        p99=statistics.median(result["p99"] for result in jobs),
    )
