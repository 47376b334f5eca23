"""One round of one system: enqueue, run, and check that every job ran once."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers import load
from benchmarks.peers.child.job_ledger import JobTally
from benchmarks.peers.measured_process import MeasuredProcess, cpu_seconds, memory
from benchmarks.peers.plan import BenchError, Plan
from benchmarks.peers.queue_adapter import python_command
from benchmarks.peers.round_config import RoundConfig
from benchmarks.peers.round_result import PERCENT, RoundResult, RunCheck, percentiles
from benchmarks.peers.servers import DatabaseServer

START_TIMEOUT = 60.0  # seconds for the start of a process, on a busy machine
MIN_RATE = 50  # jobs per second; a slower system fails
DUPLICATE_WAIT = 0.3  # seconds in which a second run of a job would appear


@dataclass(frozen=True, slots=True)
class RoundSetup:
    """Inputs of one round: adapter module, plan, directory and server."""

    module: str
    plan: Plan
    directory: Path
    server: DatabaseServer | None
    url: str

    @property
    def timeout(self) -> float:
        return START_TIMEOUT + self.plan.total / MIN_RATE

    def prepare(self, jobs: int, *, stamps: bool = False) -> RoundConfig:
        config = RoundConfig(self.directory, jobs, self.url, stamps)
        config.save()
        return config

    def child(self, *arguments: str) -> MeasuredProcess:
        return MeasuredProcess(self.directory, load(self.module).program(self.module), *arguments)

    def watcher(self) -> MeasuredProcess:
        """Return the watcher, always a Python process: it only queries the queue."""
        return MeasuredProcess(self.directory, python_command(self.module), "watch")


def measure_throughput(setup: RoundSetup) -> RoundResult:
    """Time each kind of enqueue, then the drain by one new worker process."""
    result, plan = RoundResult(), setup.plan
    config = setup.prepare(plan.total)
    rates = _fill(setup, plan.single_jobs, plan.concurrent_jobs, plan.bulk_jobs)
    result.add(plan, rates)
    seconds, memory_use = _drain(setup, 1)
    result.check = RunCheck.of(JobTally.of(config))
    result.add(plan, {"drain": plan.total / seconds})
    if "memory" in plan.only:
        result.figures |= {f"memory_{kind}": size for kind, size in memory_use.items()}
    return result


def measure_pair(setup: RoundSetup) -> RoundResult:
    """Time the drain of the same jobs by two worker processes."""
    result, plan = RoundResult(), setup.plan
    config = setup.prepare(plan.total)
    _fill(setup, 1, 0, plan.total - 1)
    seconds, _ = _drain(setup, 2)
    result.check = RunCheck.of(JobTally.of(config))
    result.add(plan, {"pair": plan.total / seconds})
    return result


def _fill(setup: RoundSetup, *counts: int) -> Mapping[str, float | None]:
    with setup.child("fill", *map(str, counts)) as producer:
        filled = producer.expect("filled", setup.timeout)
        producer.wait()
    if setup.server is not None:
        setup.server.quiesce(setup.url)
    return {key: filled[key] for key in ("single", "concurrent", "bulk")}


def _drain(setup: RoundSetup, worker_count: int) -> tuple[float, Mapping[str, float]]:
    """Return the seconds from the first worker's start to the last settle, and memory."""
    with ExitStack() as stack:
        workers = [stack.enter_context(setup.child("work")) for _ in range(worker_count)]
        for worker in workers:
            worker.expect("ready", START_TIMEOUT)
        watcher = stack.enter_context(setup.watcher())
        watcher.expect("watching", START_TIMEOUT, workers)
        for worker in workers:
            worker.start()
        started = [worker.expect("started", START_TIMEOUT)["at"] for worker in workers]
        drained = watcher.expect("drained", setup.timeout, workers)["at"]
        time.sleep(DUPLICATE_WAIT)
        memory_use = memory(workers[0].pid)
    return (drained - min(started)) / 1e9, memory_use


def measure_idle_worker(setup: RoundSetup) -> RoundResult:
    """Measure a worker without jobs, then the start latency of single jobs."""
    result, plan = RoundResult(), setup.plan
    starts = plan.starts if "latency" in plan.only else 0
    config = setup.prepare(starts + 1, stamps=True)
    arguments = ("enqueue_spaced", str(starts), str(plan.pause), str(plan.gap))
    with setup.child("work") as worker:
        worker.expect("ready", START_TIMEOUT)
        worker.start()
        worker.expect("started", START_TIMEOUT)
        with setup.child(*arguments) as producer:
            producer.expect("pausing", START_TIMEOUT)
            time.sleep(plan.pause - plan.idle)
            result.add(plan, _idle(setup, worker))
            enqueued = producer.expect("enqueued", START_TIMEOUT + starts * plan.gap, [worker])
        with setup.watcher() as watcher:
            watcher.expect("drained", START_TIMEOUT, [worker])
        time.sleep(DUPLICATE_WAIT)
    tally = JobTally.of(config)
    result.check = RunCheck.of(tally)
    result.latencies_ms = [
        (tally.starts[number] - called) / 1e6
        for number, called, _ in enqueued["calls"]
        if number in tally.starts
    ]
    if result.latencies_ms:
        result.figures |= percentiles(result.latencies_ms)
    return result


def _idle(setup: RoundSetup, worker: MeasuredProcess) -> dict[str, float | None]:
    """Return the CPU use of worker and server in percent of a core."""
    pids = {"idle": worker.pid, "idle_server": setup.server.pid if setup.server else None}
    before, began = {key: cpu_seconds(pid) for key, pid in pids.items()}, time.monotonic()
    time.sleep(setup.plan.idle * 0.98)  # end before the first job
    after, ended = {key: cpu_seconds(pid) for key, pid in pids.items()}, time.monotonic()
    usage: dict[str, float | None] = {}
    for key in pids:
        first, last = before[key], after[key]
        if first is not None and last is not None:
            usage[key] = PERCENT * max(0.0, last - first) / (ended - began)
    return usage


KINDS: Mapping[str, Callable[[RoundSetup], RoundResult]] = {
    "throughput": measure_throughput,
    "pair": measure_pair,
    "idle_worker": measure_idle_worker,
}


def run_round(kind: str, setup: RoundSetup) -> RoundResult:
    """Run a round; the failure of one system does not stop the others."""
    setup.directory.mkdir()
    # The nearest settings file applies, so settings of the user are not measured.
    settings = "# empty: the defaults apply\n"
    (setup.directory / "windlass.toml").write_text(settings, encoding="utf-8")
    try:
        return KINDS[kind](setup)
    except BenchError as error:
        return RoundResult(error=str(error))
