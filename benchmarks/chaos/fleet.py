"""The processes of one storm: started, hurt, replaced, and at the end gone.

They are forked from a clean process that has imported Windlass, so that a worker is at work a
moment after it was started; each is a process of its own, that can be killed or frozen.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from random import Random

from benchmarks.chaos.ledger import PLACE, note, read
from benchmarks.chaos.processes import Mix, produce, work

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["windlass.cli", "windlass.testing", "benchmarks.chaos.processes"])
PATIENCE = 60.0


class Fleet:
    def __init__(
        self,
        place: Path,
        random: Random,
        mix: Mix,
        *,
        jobs: int,
        workers: int,
        producers: int,
        words: list[str],
        plant: str | None = None,
    ) -> None:
        self.place = place
        self.random = random
        self._mix = mix
        self._wanted = workers
        self._words = words
        self._plant = plant
        self.workers: list[ForkServerProcess] = []
        self.stopping: list[ForkServerProcess] = []
        share = -(-jobs // producers)
        self._shares = {n: min(share, jobs - n * share) for n in range(producers)}
        self.producers: dict[int, ForkServerProcess] = {}

    def begin(self) -> None:
        """Start the workers, and when they have said that they are there, the producers."""
        self._fill_workers()
        deadline = time.monotonic() + PATIENCE
        while not all(self._is_there(worker) for worker in self.workers):
            if time.monotonic() > deadline:
                raise TimeoutError(f"the workers do not begin; see {self.place / 'log'}")
            time.sleep(0.01)
        self.fill()

    def _is_there(self, worker: ForkServerProcess) -> bool:
        log = self.place / "log" / f"worker-{worker.pid}.log"
        return log.exists() and log.stat().st_size > 0

    def fill(self) -> None:
        """Replace what died; a producer goes on with what was not yet acknowledged."""
        self._fill_workers()
        self._fill_producers()

    def _fill_workers(self) -> None:
        self.workers = [worker for worker in self.workers if worker.is_alive()]
        while len(self.workers) < self._wanted:
            worker = _CONTEXT.Process(target=work, args=(self.place, self._words, self._plant))
            worker.start()
            self.workers.append(worker)

    def _fill_producers(self) -> None:
        for number, share in self._shares.items():
            producer = self.producers.get(number)
            if producer is None or producer.exitcode not in {None, 0}:
                left = share - self._answered(number)
                seed = self.random.getrandbits(32)
                self.producers[number] = _CONTEXT.Process(
                    target=produce, args=(self.place, number, left, seed, self._mix)
                )
                self.producers[number].start()

    def _answered(self, number: int) -> int:
        lines = [line for line in read(self.place, "producer") if line.get("producer") == number]
        return sum(len(line.get("answered", ())) for line in lines)

    @property
    def produced(self) -> bool:
        """Whether every producer has done its share."""
        return all(producer.exitcode == 0 for producer in self.producers.values())

    def any_worker(self) -> ForkServerProcess:
        return self.random.choice(self.workers)

    def hurt(self, process: ForkServerProcess, number: signal.Signals) -> None:
        assert process.pid is not None
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, number)
            note("driver", self.place, fault=number.name, pid=process.pid)

    def stop(self, worker: ForkServerProcess) -> None:
        """Ask it to end; `fill` starts another at once."""
        worker.terminate()
        self.workers.remove(worker)
        self.stopping.append(worker)

    def end(self) -> list[str]:
        """Stop all; answers what did not end as it should."""
        for worker in [*self.workers]:
            self.stop(worker)
        wrong = []
        for worker in self.stopping:
            worker.join(PATIENCE)
            if worker.exitcode not in {0, -signal.SIGTERM}:  # told before it listened
                wrong.append(f"a worker that was asked to stop ended with {worker.exitcode}")
        self.abandon()
        return wrong + [f"process {pid} was left behind" for pid in left_behind(self.place)]

    def abandon(self) -> None:
        """Kill whatever is left of our own; for the end of a storm that broke off."""
        for process in (*self.workers, *self.stopping, *self.producers.values()):
            process.kill()
            process.join(PATIENCE)


def left_behind(place: Path, patience: float = PATIENCE / 6) -> list[int]:
    """Children of workers that outlive them; they may take a moment to go. On Linux."""
    deadline = time.monotonic() + patience
    while (found := _of_this_storm(place)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def _of_this_storm(place: Path) -> list[int]:
    mark = f"{PLACE}={place}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
    return found
