"""One round of one side: what is put in, what a worker makes of it, and whether all was well."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from windlass.bench.ledger import Ledger
from windlass.bench.plan import Plan
from windlass.bench.processes import BenchError, Child, cpu_seconds, memory

START = 60.0  # seconds until a process is up, on a busy machine
SLOWEST = 50  # jobs a second: who is slower is given up
LINGER = 0.3  # seconds in which a job that runs a second time shows itself
CENT = 100


@dataclass(frozen=True, slots=True)
class Check:
    """Whether every job ran exactly once, and (where the store can tell) is finished."""

    jobs: int
    missing: int
    twice: int
    unfinished: int = 0

    @classmethod
    def of(cls, tally: Mapping[str, Any]) -> Check:
        return cls(tally["jobs"], tally["missing"], tally["twice"], tally.get("unfinished", 0))

    @property
    def exactly_once(self) -> bool:
        return not (self.missing or self.twice or self.unfinished)

    def __str__(self) -> str:
        kinds = {"never ran": self.missing, "ran twice": self.twice, "never ended": self.unfinished}
        found = [f"{n:,} {what}" for what, n in kinds.items() if n]
        return f"of {self.jobs:,} jobs {', '.join(found) or 'each ran exactly once'}"


@dataclass(slots=True)
class Round:
    """The figures of one round, by their keys; `error` says why there are none, or not all."""

    figures: dict[str, float] = field(default_factory=dict)
    latencies_ms: list[float] = field(default_factory=list)
    check: Check | None = None
    error: str | None = None


def throughput(module: str, plan: Plan, directory: Path) -> Round:
    """Put jobs in, one by one and in bulk; then a fresh worker process works them all off."""
    result = Round()
    patience = START + plan.total / SLOWEST
    Ledger.prepare(directory, plan.total, stamps=False)
    with Child(directory, module, "fill", str(plan.singles), str(plan.others)) as producer:
        filled = producer.expect("filled", patience)
        producer.wait()
    _note(result, plan, {"single": filled["single"], "bulk": filled["bulk"]})
    with Child(directory, module, "work") as worker:
        worker.expect("begun", START)
        drained = worker.expect("drained", patience)
        time.sleep(LINGER)
        held = memory(worker.pid)
        result.check = Check.of(worker.stop())
    _note(result, plan, {"drain": plan.total / drained["seconds"]})
    if "memory" in plan.only:
        result.figures |= {f"memory_{kind}": size for kind, size in held.items()}
    return result


def waiting(module: str, plan: Plan, directory: Path) -> Round:
    """A worker waits in vain, and then for jobs that come one at a time from another process."""
    result = Round()
    starts = plan.starts if "latency" in plan.only else 0
    Ledger.prepare(directory, starts + 1, stamps=True)
    words = ("trickle", str(starts), str(plan.pause), str(plan.gap))
    with Child(directory, module, "work") as worker:
        worker.expect("begun", START)
        with Child(directory, module, *words) as producer:
            producer.expect("pausing", START)
            time.sleep(plan.pause - plan.idle)
            before, began = cpu_seconds(worker.pid), time.monotonic()
            # Not to the very end of the pause: the first job is no idling.
            time.sleep(plan.idle * 0.98)
            after, ended = cpu_seconds(worker.pid), time.monotonic()
            trickled = producer.expect("trickled", START + starts * plan.gap)
        worker.expect("drained", START)
        time.sleep(LINGER)
        tally = worker.stop()
    result.check = Check.of(tally)
    if before is not None and after is not None:
        _note(result, plan, {"idle": CENT * (after - before) / (ended - began)})
    begun = {int(number): at for number, at in tally["starts"].items()}
    result.latencies_ms = [
        (begun[number] - put) / 1e6 for number, put, _ in trickled["puts"] if number in begun
    ]
    if result.latencies_ms:
        result.figures |= percentiles(result.latencies_ms)
    return result


def percentiles(latencies: list[float]) -> dict[str, float]:
    if len(latencies) == 1:
        return {"latency_p50": latencies[0], "latency_p99": latencies[0]}
    cuts = statistics.quantiles(latencies, n=CENT, method="inclusive")
    return {"latency_p50": cuts[49], "latency_p99": cuts[98]}


def _note(result: Round, plan: Plan, figures: Mapping[str, float | None]) -> None:
    """Of what was measured, what is wanted."""
    result.figures |= {
        key: value for key, value in figures.items() if value is not None and key in plan.only
    }


def attempt(module: str, plan: Plan, directory: Path, *, wait: bool) -> Round:
    """A round; a side that breaks down keeps no other from being measured."""
    directory.mkdir()
    # The nearest settings file is this one: the user's own are not measured.
    (directory / "windlass.toml").write_text("# nothing is set: these are the defaults\n")
    try:
        return (waiting if wait else throughput)(module, plan, directory)
    except BenchError as error:
        return Round(error=str(error))
