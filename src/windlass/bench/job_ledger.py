"""What a worker under measure did: a file in the place of the round, and words to the bench.

The file is mapped into memory, so that it outlives its process however that ends. All numbers are
little-endian: how many different jobs ran here (8 bytes); with stamps, when each started (8 bytes a
job, nanoseconds); how often each ran (1 byte a job). The clock is CLOCK_MONOTONIC, which the
processes of one machine share. What is told are lines of JSON.
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Lock, Thread
from typing import Any

from windlass.bench.round_config import Place

WORD = 8  # bytes
SUFFIX = ".ledger"


def tell(**values: Any) -> None:
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


class Parent:
    """The bench, at the other end of our input: it says when to begin, and may be gone."""

    def __init__(self) -> None:
        self._go = Event()
        Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        while os.read(sys.stdin.fileno(), 1):
            self._go.set()
        os.kill(os.getpid(), signal.SIGTERM)
        self._go.set()  # who still waits blocks the loop that would see the signal

    def wait(self) -> None:
        """Until it says go."""
        self._go.wait()


class Ledger:
    def __init__(self, place: Place, parent: Parent) -> None:
        self._parent = parent
        stamps = WORD * place.jobs if place.stamps else 0
        size = WORD + stamps + place.jobs
        with (place.directory / f"{os.getpid()}{SUFFIX}").open("w+b") as file:
            file.truncate(size)
            file.flush()
            view = memoryview(mmap.mmap(file.fileno(), size))
        self._count = view[:WORD].cast("Q")
        self._starts = view[WORD : WORD + stamps].cast("Q") if stamps else None
        self._runs = view[WORD + stamps :]
        self._lock = Lock()  # some sides run jobs in threads

    def begin(self) -> None:
        """Just before the worker starts to look for jobs; all workers of a round do at once."""
        tell(event="ready")
        self._parent.wait()
        tell(event="begun", at=time.monotonic_ns())

    def ran(self, payload: str) -> None:
        """The job itself: all that it does."""
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
class Tally:
    """What all the workers of a round did together."""

    jobs: int
    missing: int
    twice: int
    starts: dict[int, int] = field(default_factory=dict)

    @classmethod
    def of(cls, place: Place) -> Tally:
        books = [path.read_bytes() for path in ledgers(place.directory)]
        stamps = WORD * place.jobs if place.stamps else 0
        runs = [0] * place.jobs
        starts: dict[int, int] = {}
        for book in books:
            for number, times in enumerate(book[WORD + stamps :]):
                runs[number] += times
            if stamps:
                found = enumerate(memoryview(book)[WORD : WORD + stamps].cast("Q"))
                starts |= {number: at for number, at in found if at}
        missing = runs.count(0)
        return cls(place.jobs, missing, place.jobs - missing - runs.count(1), starts)


def ledgers(directory: Path) -> list[Path]:
    return sorted(directory.glob(f"*{SUFFIX}"))


def all_ran(place: Place, counts: Iterable[memoryview]) -> bool:
    """Cheap while jobs are left: only once there may be none is every job looked at."""
    return sum(count[0] for count in counts) >= place.jobs and not Tally.of(place).missing


def counts_of(place: Place) -> list[memoryview]:
    """A live view of each worker's count; the workers are ready by now."""
    found = []
    for path in ledgers(place.directory):
        with path.open("rb") as file:
            view = mmap.mmap(file.fileno(), WORD, access=mmap.ACCESS_READ)
            found.append(memoryview(view).cast("Q"))
    return found
