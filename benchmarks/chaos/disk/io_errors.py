"""Temporary disk errors in some processes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.chaos.disk.disk_config import prepare
from benchmarks.chaos.disk.faulty_disks import FAILING, switch
from benchmarks.chaos.disk.process_survival import all_survived, release_more_jobs
from benchmarks.chaos.processes.fleet import Fleet


@contextmanager
def failing_disk(directory: Path) -> Iterator[list[str]]:
    prepare(directory, "failing")
    problems: list[str] = []
    yield problems
    problems += all_survived(directory)


def fail_writes(fleet: Fleet, _: float) -> None:
    """Half of all processes cannot rely on the disk for a while, and then can again."""
    release_more_jobs(fleet)
    living = [*fleet.workers, *(one for one in fleet.producers.values() if one.is_alive())]
    chosen = fleet.random.sample(living, len(living) // 2)
    switches = [switch(fleet.directory / "disk", FAILING, one.pid) for one in chosen]
    for each in switches:
        each.touch()
    time.sleep(fleet.random.uniform(0.3, 1.0))
    for each in switches:
        each.unlink()
