"""One round of one side: enqueue, run, and check that every job ran once."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from windlass.bench.job_ledger import JobTally
from windlass.bench.measured_process import BenchError, BenchProcess, cpu_seconds, memory
from windlass.bench.peers import load
from windlass.bench.plan import Plan
from windlass.bench.round_config import RoundConfig
from windlass.bench.server import BenchServer
from windlass.bench.side import python_command

START = 60.0  # seconds for the start of a process, on a busy machine
SLOWEST = 50  # jobs per second; a slower side fails
LINGER = 0.3  # seconds in which a second run of a job would appear
CENT = 100


@dataclass(frozen=True, slots=True)
class Check:
    """Whether every job ran exactly once."""

    jobs: int
    missing: int
    twice: int

    @classmethod
    def of(cls, tally: JobTally) -> Check:
        return cls(tally.jobs, tally.missing, tally.twice)

    @property
    def exactly_once(self) -> bool:
        return not (self.missing or self.twice)

    def __str__(self) -> str:
        kinds = {"never ran": self.missing, "ran twice": self.twice}
        found = [f"{n:,} {what}" for what, n in kinds.items() if n]
        return f"of {self.jobs:,} jobs {', '.join(found) or 'each ran exactly once'}"


@dataclass(slots=True)
class Round:
    """Figures of one round by key; `error` is the reason for missing figures."""

    figures: dict[str, float] = field(default_factory=dict)
    latencies_ms: list[float] = field(default_factory=list)
    check: Check | None = None
    error: str | None = None

    def add(self, plan: Plan, figures: Mapping[str, float | None]) -> None:
        """Add the figures that the plan includes."""
        self.figures |= {
            key: value
            for key, value in figures.items()
            if value is not None and key.partition("_")[0] in plan.only
        }


@dataclass(frozen=True, slots=True)
class RoundSetup:
    """Inputs of one round: side, plan, directory and server."""

    module: str
    plan: Plan
    directory: Path
    server: BenchServer | None
    url: str

    @property
    def timeout(self) -> float:
        return START + self.plan.total / SLOWEST

    def prepare(self, jobs: int, *, stamps: bool = False) -> RoundConfig:
        config = RoundConfig(self.directory, jobs, self.url, stamps)
        config.save()
        return config

    def child(self, *arguments: str) -> BenchProcess:
        return BenchProcess(self.directory, load(self.module).program(self.module), *arguments)

    def watcher(self) -> BenchProcess:
        """Return the watcher, always a Python process: it only queries the queue."""
        return BenchProcess(self.directory, python_command(self.module), "watch")


def throughput(setup: RoundSetup) -> Round:
    """Time each kind of enqueue, then the drain by one new worker process."""
    result, plan = Round(), setup.plan
    config = setup.prepare(plan.total)
    filled = _fill(setup, plan.singles, plan.together, plan.others)
    result.add(plan, filled)
    seconds, held = _drain(setup, 1)
    result.check = Check.of(JobTally.of(config))
    result.add(plan, {"drain": plan.total / seconds})
    if "memory" in plan.only:
        result.figures |= {f"memory_{kind}": size for kind, size in held.items()}
    return result


def pair(setup: RoundSetup) -> Round:
    """Time the drain of the same jobs by two worker processes."""
    result, plan = Round(), setup.plan
    config = setup.prepare(plan.total)
    _fill(setup, 1, 0, plan.total - 1)
    seconds, _ = _drain(setup, 2)
    result.check = Check.of(JobTally.of(config))
    result.add(plan, {"pair": plan.total / seconds})
    return result


def _fill(setup: RoundSetup, *numbers: int) -> Mapping[str, float | None]:
    with setup.child("fill", *map(str, numbers)) as producer:
        filled = producer.expect("filled", setup.timeout)
        producer.wait()
    if setup.server is not None:
        setup.server.quiesce(setup.url)
    return {key: filled[key] for key in ("single", "together", "bulk")}


def _drain(setup: RoundSetup, number: int) -> tuple[float, Mapping[str, float]]:
    """Return the seconds from the first worker's start to the last settle, and memory."""
    with ExitStack() as stack:
        workers = [stack.enter_context(setup.child("work")) for _ in range(number)]
        for worker in workers:
            worker.expect("ready", START)
        watcher = stack.enter_context(setup.watcher())
        watcher.expect("watching", START, workers)
        for worker in workers:
            worker.start()
        started = [worker.expect("started", START)["at"] for worker in workers]
        drained = watcher.expect("drained", setup.timeout, workers)["at"]
        time.sleep(LINGER)
        held = memory(workers[0].pid)
    return (drained - min(started)) / 1e9, held


def waiting(setup: RoundSetup) -> Round:
    """Measure a worker without jobs, then the start latency of single jobs."""
    result, plan = Round(), setup.plan
    starts = plan.starts if "latency" in plan.only else 0
    config = setup.prepare(starts + 1, stamps=True)
    arguments = ("trickle", str(starts), str(plan.pause), str(plan.gap))
    with setup.child("work") as worker:
        worker.expect("ready", START)
        worker.start()
        worker.expect("started", START)
        with setup.child(*arguments) as producer:
            producer.expect("pausing", START)
            time.sleep(plan.pause - plan.idle)
            result.add(plan, _idle(setup, worker))
            trickled = producer.expect("trickled", START + starts * plan.gap, [worker])
        with setup.watcher() as watcher:
            watcher.expect("drained", START, [worker])
        time.sleep(LINGER)
    tally = JobTally.of(config)
    result.check = Check.of(tally)
    result.latencies_ms = [
        (tally.starts[number] - put) / 1e6
        for number, put, _ in trickled["puts"]
        if number in tally.starts
    ]
    if result.latencies_ms:
        result.figures |= percentiles(result.latencies_ms)
    return result


def _idle(setup: RoundSetup, worker: BenchProcess) -> dict[str, float | None]:
    """Return the CPU use of worker and server in percent of a core."""
    pids = {"idle": worker.pid, "idle_server": setup.server.pid if setup.server else None}
    before, began = {key: cpu_seconds(pid) for key, pid in pids.items()}, time.monotonic()
    time.sleep(setup.plan.idle * 0.98)  # end before the first job
    after, ended = {key: cpu_seconds(pid) for key, pid in pids.items()}, time.monotonic()
    found: dict[str, float | None] = {}
    for key in pids:
        one, two = before[key], after[key]
        if one is not None and two is not None:
            found[key] = CENT * max(0.0, two - one) / (ended - began)
    return found


def percentiles(latencies: list[float]) -> dict[str, float]:
    if len(latencies) == 1:
        return {"latency_p50": latencies[0], "latency_p99": latencies[0]}
    cuts = statistics.quantiles(latencies, n=CENT, method="inclusive")
    return {"latency_p50": cuts[49], "latency_p99": cuts[98]}


KINDS: Mapping[str, Callable[[RoundSetup], Round]] = {
    "throughput": throughput,
    "pair": pair,
    "waiting": waiting,
}


def attempt(kind: str, setup: RoundSetup) -> Round:
    """Run a round; the failure of one side does not stop the others."""
    setup.directory.mkdir()
    # The nearest settings file applies, so settings of the user are not measured.
    nothing = "# empty: the defaults apply\n"
    (setup.directory / "windlass.toml").write_text(nothing, encoding="utf-8")
    try:
        return KINDS[kind](setup)
    except BenchError as error:
        return Round(error=str(error))
