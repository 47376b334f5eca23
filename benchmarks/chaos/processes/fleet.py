"""Fleet of the processes of one storm: start, signals, replacement and stop.

They are forked from a clean process that has imported Windlass, so a worker starts quickly. Each is
a separate process that can be killed or frozen.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from random import Random

from benchmarks.chaos.ledger import STORM_VARIABLE, note, read
from benchmarks.chaos.processes.config import ProcessConfig
from benchmarks.chaos.processes.job_quota import allow
from benchmarks.chaos.processes.producer import produce
from benchmarks.chaos.processes.programs import sweep, work
from benchmarks.chaos.stores import STORES
from benchmarks.chaos.storm import Plan, Storm

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(  # all imports of a worker that do not read the environment
    [
        "windlass.cli",
        *(store.driver for store in STORES.values()),
        "pydantic.types",
        "uvloop",
        "benchmarks.chaos.processes.programs",
        "benchmarks.chaos.processes.producer",
        "benchmarks.chaos.processes.lossy_store",
        "benchmarks.chaos.processes.settle_recorder",
    ]
)
TIMEOUT = 60.0
MAX_FAILED = 50
SWEEP_INTERVAL = 1.0  # seconds between two sweeps of a worker


class Fleet:
    """`faults` counts the faults by name."""

    def __init__(self, directory: Path, storm: Storm, plan: Plan) -> None:
        self.directory = directory
        self.store = STORES[plan.store]
        self.random = Random(plan.seed)
        # One worker must remain.
        self.faults_per_injection = min(storm.faults_per_injection, plan.workers - 1)
        self.faults: Counter[str] = Counter()
        self.workers: list[ForkServerProcess] = []
        self.sweepers: list[ForkServerProcess] = []
        self.stopping: list[ForkServerProcess] = []
        self.producers: dict[int, ForkServerProcess] = {}
        self._failed = 0  # workers that exited with an error
        self.plan = plan
        self._storm = storm
        share = -(-plan.jobs // storm.producers)
        self._shares = {n: min(share, plan.jobs - n * share) for n in range(storm.producers)}
        leases = (f"--lease={storm.lease}s", f"--grace={storm.grace}s")
        self._config = ProcessConfig(
            directory=directory,
            url=self.store.url(directory),
            mix=storm.mix,
            arguments=(f"-Qdefault={plan.slots}", *leases, *storm.arguments),
            plant=plan.plant,
            lost_calls=storm.lost_calls,
            skew=storm.skew,
            sweep_interval=SWEEP_INTERVAL,
            producers=storm.producers,
        )

    def start(self) -> None:
        """Start the workers, and the producers when all workers are ready."""
        self._fill_workers()
        deadline = time.monotonic() + TIMEOUT
        while not all(self._has_started(worker) for worker in self.workers):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the workers do not start; see {self.directory / 'log'}")
            time.sleep(0.01)
        self.fill()

    def _has_started(self, worker: ForkServerProcess) -> bool:
        log = self.directory / "log" / f"worker-{worker.pid}.log"
        return log.exists() and log.stat().st_size > 0

    def fill(self) -> None:
        """Replace dead processes; a producer continues with its unacknowledged jobs."""
        self._fill_workers()
        self._fill_producers()

    def _fill_workers(self) -> None:
        self.workers = self._refilled(self.workers, self.plan.workers, work)
        self.sweepers = self._refilled(self.sweepers, self._storm.sweepers, sweep)

    def _refilled(
        self,
        processes: list[ForkServerProcess],
        count: int,
        target: Callable[[ProcessConfig, int], None],
    ) -> list[ForkServerProcess]:
        alive = [process for process in processes if process.is_alive()]
        self._failed += sum((process.exitcode or 0) > 0 for process in processes)
        if self._failed > MAX_FAILED:
            raise RuntimeError(f"too many workers fail; see {self.directory}/log")
        while len(alive) < count:
            seed = self.random.getrandbits(32)
            process = _CONTEXT.Process(target=target, args=(self._config, seed))
            process.start()
            alive.append(process)
        return alive

    def _fill_producers(self) -> None:
        for number, share in self._shares.items():
            producer = self.producers.get(number)
            if producer is None or producer.exitcode not in {None, 0}:
                arguments = (
                    number,
                    share,
                    self._acknowledged_count(number),
                    self.random.getrandbits(32),
                )
                self.producers[number] = _CONTEXT.Process(
                    target=produce, args=(self._config, *arguments)
                )
                self.producers[number].start()

    def _acknowledged_count(self, number: int) -> int:
        lines = [
            line for line in read(self.directory, "producer") if line.get("producer") == number
        ]
        return sum(len(line.get("acknowledged", ())) for line in lines)

    def allow(self, jobs: int) -> None:
        """Let the producers enqueue up to this many jobs in total."""
        allow(self.directory, jobs)

    @property
    def produced(self) -> bool:
        """Whether every producer has enqueued its share."""
        return all(producer.exitcode == 0 for producer in self.producers.values())

    @property
    def all_processes(self) -> list[ForkServerProcess]:
        return [*self.workers, *self.sweepers, *self.producers.values()]

    def any_worker(self) -> ForkServerProcess:
        alive = [worker for worker in self.workers if worker.is_alive()]
        return self.random.choice(alive or self.workers)

    def send_signal(
        self, process: ForkServerProcess, signal_: signal.Signals, name: str | None = None
    ) -> None:
        assert process.pid is not None
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal_)
            self.record_fault(name or signal_.name, process.pid)

    def record_fault(self, fault: str, pid: int | None = None) -> None:
        self.faults[fault] += 1
        note("driver", self.directory, fault=fault, pid=pid)

    def stop(self, worker: ForkServerProcess) -> None:
        """Send SIGTERM to the worker; `fill` starts another at once."""
        worker.terminate()
        self.workers.remove(worker)
        self.stopping.append(worker)

    def end(self) -> list[str]:
        """Stop all processes; return the problems."""
        for worker in [*self.workers]:
            self.stop(worker)
        problems = []
        for worker in self.stopping:
            worker.join(TIMEOUT)
            was_killed = worker.exitcode == -signal.SIGKILL and worker.pid in self._killed_pids()
            # -SIGTERM: before the handler was installed, or after it was removed.
            if worker.exitcode not in {0, -signal.SIGTERM} and not was_killed:
                problems.append(f"a stopped worker exited with {worker.exitcode}")
        self.abandon()
        return problems + [
            f"process {pid} outlived the storm" for pid in leftover_processes(self.directory)
        ]

    def _killed_pids(self) -> set[int]:
        """Return the processes with a fault in the ledger, some by their own task."""
        return {line["pid"] for line in read(self.directory, "driver") if line.get("fault")}

    def abandon(self) -> None:
        """Kill all processes; for the end of an aborted storm."""
        for process in (*self.all_processes, *self.stopping):
            process.kill()
            process.join(TIMEOUT)


def leftover_processes(directory: Path, timeout: float = TIMEOUT / 6) -> list[int]:
    """Return the processes of the storm that remain after the timeout. Linux only."""
    deadline = time.monotonic() + timeout
    while (found := _processes_of_storm(directory)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def _processes_of_storm(directory: Path) -> list[int]:
    mark = f"{STORM_VARIABLE}={directory}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found
