"""Ledger of a measured worker: a file with the run count and the start of each job.

The file is a memory map, so it survives any end of its process. All numbers are little-endian: the
number of different jobs that ran (8 bytes); with stamps, the start of each job (8 bytes per job,
nanoseconds); the number of runs of each job (1 byte per job). The clock is CLOCK_MONOTONIC, which
all processes of a machine share.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock

from benchmarks.peers.child.parent_channel import ParentChannel, send_event
from benchmarks.peers.round_config import RoundConfig

INT_SIZE = 8  # bytes
SUFFIX = ".ledger"


class JobLedger:
    def __init__(self, config: RoundConfig, parent: ParentChannel) -> None:
        self._parent = parent
        stamps = INT_SIZE * config.jobs if config.stamps else 0
        size = INT_SIZE + stamps + config.jobs
        with (config.directory / f"{os.getpid()}{SUFFIX}").open("w+b") as file:
            file.truncate(size)
            file.flush()
            view = memoryview(mmap.mmap(file.fileno(), size))
        self._count = view[:INT_SIZE].cast("Q")
        self._starts = view[INT_SIZE : INT_SIZE + stamps].cast("Q") if stamps else None
        self._runs = view[INT_SIZE + stamps :]
        self._lock = Lock()  # some libraries run jobs in threads

    def wait_for_start(self) -> None:
        """Wait until all workers of a round may start; call it right before the first fetch."""
        send_event(event="ready")
        self._parent.wait()
        send_event(event="started", at=time.monotonic_ns())

    def record_run(self, payload: str) -> None:
        """Record one run: this is the body of the no-op job."""
        now = time.monotonic_ns() if self._starts is not None else 0
        number = int(payload[:8])
        with self._lock:
            runs = self._runs[number]
            self._runs[number] = min(255, runs + 1)
            if not runs:
                self._count[0] += 1
                if self._starts is not None:
                    self._starts[number] = now


@dataclass(frozen=True, slots=True)
class JobTally:
    """Run counts and start times of all workers of a round."""

    jobs: int
    missing: int
    twice: int
    starts: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, config: RoundConfig) -> JobTally:
        contents = [path.read_bytes() for path in ledgers(config.directory)]
        stamps = INT_SIZE * config.jobs if config.stamps else 0
        runs = [0] * config.jobs
        starts: dict[int, int] = {}
        for content in contents:
            for number, times in enumerate(content[INT_SIZE + stamps :]):
                runs[number] += times
            if stamps:
                numbered = enumerate(memoryview(content)[INT_SIZE : INT_SIZE + stamps].cast("Q"))
                starts |= {number: at for number, at in numbered if at}
        missing = runs.count(0)
        return cls(config.jobs, missing, config.jobs - missing - runs.count(1), starts)


def ledgers(directory: Path) -> list[Path]:
    return sorted(directory.glob(f"*{SUFFIX}"))


def all_ran(config: RoundConfig, counts: Iterable[memoryview]) -> bool:
    """Whether every job ran. Reads all ledgers only if the counts allow it."""
    return sum(count[0] for count in counts) >= config.jobs and not JobTally.of(config).missing


def open_counts(config: RoundConfig) -> list[memoryview]:
    """Return a live view of each worker's count. All workers must be ready."""
    counts = []
    for path in ledgers(config.directory):
        with path.open("rb") as file:
            view = mmap.mmap(file.fileno(), INT_SIZE, access=mmap.ACCESS_READ)
            counts.append(memoryview(view).cast("Q"))
    return counts
