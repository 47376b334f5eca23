"""One round of one side: what is put in, what workers make of it, and whether all was well."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from windlass.bench.job_ledger import Tally
from windlass.bench.measured_process import BenchError, Child, cpu_seconds, memory
from windlass.bench.peers import load
from windlass.bench.plan import Plan
from windlass.bench.round_config import Place
from windlass.bench.server import Server
from windlass.bench.side import in_python

START = 60.0  # seconds until a process is up, on a busy machine
SLOWEST = 50  # jobs a second: who is slower is given up
LINGER = 0.3  # seconds in which a job that runs a second time shows itself
CENT = 100


@dataclass(frozen=True, slots=True)
class Check:
    """Whether every job ran exactly once."""

    jobs: int
    missing: int
    twice: int

    @classmethod
    def of(cls, tally: Tally) -> Check:
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
    """The figures of one round, by their keys; `error` says why there are none, or not all."""

    figures: dict[str, float] = field(default_factory=dict)
    latencies_ms: list[float] = field(default_factory=list)
    check: Check | None = None
    error: str | None = None

    def note(self, plan: Plan, figures: Mapping[str, float | None]) -> None:
        """Of what was measured, what is wanted."""
        self.figures |= {
            key: value
            for key, value in figures.items()
            if value is not None and key.partition("_")[0] in plan.only
        }


@dataclass(frozen=True, slots=True)
class Setting:
    """One round about to begin: whose, how much, where, on which server."""

    module: str
    plan: Plan
    directory: Path
    server: Server | None
    url: str

    @property
    def patience(self) -> float:
        return START + self.plan.total / SLOWEST

    def prepare(self, jobs: int, *, stamps: bool = False) -> Place:
        place = Place(self.directory, jobs, self.url, stamps)
        place.prepare()
        return place

    def child(self, *words: str) -> Child:
        return Child(self.directory, load(self.module).program(self.module), *words)

    def watcher(self) -> Child:
        """Always in Python, whatever the side is written in: it asks the queue, no more."""
        return Child(self.directory, in_python(self.module), "watch")


def throughput(setting: Setting) -> Round:
    """Put jobs in, each way by itself; then a fresh worker process works them all off."""
    result, plan = Round(), setting.plan
    place = setting.prepare(plan.total)
    filled = _fill(setting, plan.singles, plan.together, plan.others)
    result.note(plan, filled)
    seconds, held = _drain(setting, 1)
    result.check = Check.of(Tally.of(place))
    result.note(plan, {"drain": plan.total / seconds})
    if "memory" in plan.only:
        result.figures |= {f"memory_{kind}": size for kind, size in held.items()}
    return result


def pair(setting: Setting) -> Round:
    """The same jobs, all put in at once, and worked off by two worker processes."""
    result, plan = Round(), setting.plan
    place = setting.prepare(plan.total)
    _fill(setting, 1, 0, plan.total - 1)
    seconds, _ = _drain(setting, 2)
    result.check = Check.of(Tally.of(place))
    result.note(plan, {"pair": plan.total / seconds})
    return result


def _fill(setting: Setting, *numbers: int) -> Mapping[str, float | None]:
    with setting.child("fill", *map(str, numbers)) as producer:
        filled = producer.expect("filled", setting.patience)
        producer.wait()
    if setting.server is not None:
        setting.server.rest(setting.url)
    return {key: filled[key] for key in ("single", "together", "bulk")}


def _drain(setting: Setting, number: int) -> tuple[float, Mapping[str, float]]:
    """Seconds from the first look of the first worker until all is settled; memory at the end."""
    with ExitStack() as stack:
        workers = [stack.enter_context(setting.child("work")) for _ in range(number)]
        for worker in workers:
            worker.expect("ready", START)
        watcher = stack.enter_context(setting.watcher())
        watcher.expect("watching", START, workers)
        for worker in workers:
            worker.go()
        begun = [worker.expect("begun", START)["at"] for worker in workers]
        drained = watcher.expect("drained", setting.patience, workers)["at"]
        time.sleep(LINGER)
        held = memory(workers[0].pid)
    return (drained - min(begun)) / 1e9, held


def waiting(setting: Setting) -> Round:
    """A worker waits in vain, and then for jobs that come one at a time from another process."""
    result, plan = Round(), setting.plan
    starts = plan.starts if "latency" in plan.only else 0
    place = setting.prepare(starts + 1, stamps=True)
    words = ("trickle", str(starts), str(plan.pause), str(plan.gap))
    with setting.child("work") as worker:
        worker.expect("ready", START)
        worker.go()
        worker.expect("begun", START)
        with setting.child(*words) as producer:
            producer.expect("pausing", START)
            time.sleep(plan.pause - plan.idle)
            result.note(plan, _idle(setting, worker))
            trickled = producer.expect("trickled", START + starts * plan.gap, [worker])
        with setting.watcher() as watcher:
            watcher.expect("drained", START, [worker])
        time.sleep(LINGER)
    tally = Tally.of(place)
    result.check = Check.of(tally)
    result.latencies_ms = [
        (tally.starts[number] - put) / 1e6
        for number, put, _ in trickled["puts"]
        if number in tally.starts
    ]
    if result.latencies_ms:
        result.figures |= percentiles(result.latencies_ms)
    return result


def _idle(setting: Setting, worker: Child) -> dict[str, float | None]:
    """Percent of a core, of the worker and of the server; not to the very end of the pause."""
    pids = {"idle": worker.pid, "idle_server": setting.server.pid if setting.server else None}
    before, began = {key: cpu_seconds(pid) for key, pid in pids.items()}, time.monotonic()
    time.sleep(setting.plan.idle * 0.98)  # the first job is no idling
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


KINDS: Mapping[str, Callable[[Setting], Round]] = {
    "throughput": throughput,
    "pair": pair,
    "waiting": waiting,
}


def attempt(kind: str, setting: Setting) -> Round:
    """A round; a side that breaks down keeps no other from being measured."""
    setting.directory.mkdir()
    # The nearest settings file is this one: the user's own are not measured.
    nothing = "# nothing is set: these are the defaults\n"
    (setting.directory / "windlass.toml").write_text(nothing, encoding="utf-8")
    try:
        return KINDS[kind](setting)
    except BenchError as error:
        return Round(error=str(error))
