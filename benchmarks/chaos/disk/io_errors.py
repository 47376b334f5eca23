"""Temporary disk errors in some processes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.chaos.disk.disk_config import prepare
from benchmarks.chaos.disk.faulty_disks import FAILING, switch
from benchmarks.chaos.disk.process_survival import died_processes, release_more_jobs
from benchmarks.chaos.processes.fleet import Fleet


@contextmanager
def failing_disk(directory: Path) -> Iterator[list[str]]:
    prepare(directory, "failing")
    problems: list[str] = []
    yield problems
    problems += died_processes(directory)


def fail_writes(fleet: Fleet, _: float) -> None:
    """Let writes and syncs fail in half of all processes for a while."""
    release_more_jobs(fleet)
    living = [
        *fleet.workers,
        *(process for process in fleet.producers.values() if process.is_alive()),
    ]
    chosen = fleet.random.sample(living, len(living) // 2)
    switches = [switch(fleet.directory / "disk", FAILING, process.pid) for process in chosen]
    for file in switches:
        file.touch()
    time.sleep(fleet.random.uniform(0.3, 1.0))
    for file in switches:
        file.unlink()
