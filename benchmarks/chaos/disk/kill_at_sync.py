"""Kills a worker before or after one of its syncs."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from benchmarks.chaos.disk.disk_config import BASE, prepare
from benchmarks.chaos.disk.faulty_disks import KILLING, switch
from benchmarks.chaos.disk.process_survival import release_more_jobs
from benchmarks.chaos.processes.fleet import Fleet

MAX_SYNCS = 6
TIMEOUT = 2.0  # for a process to reach that sync; an idle process makes none


@contextmanager
def killing_disk(directory: Path) -> Iterator[list[str]]:
    prepare(directory, "deadly")
    yield []


def kill_at_sync(fleet: Fleet, _: float) -> None:
    """Kill a worker before a sync, by strace if allowed, or right after it, by the disk."""
    release_more_jobs(fleet)
    for worker in fleet.random.sample(fleet.workers, len(fleet.workers)):
        moment, number = (
            fleet.random.choice(("before", "after")),
            fleet.random.randint(1, MAX_SYNCS),
        )
        by = "strace" if moment == "before" and can_trace() else "the disk"
        traced = _traced(fleet.directory, worker, number)
        with (
            traced if by == "strace" else _requested(fleet.directory, worker, f"{moment} {number}")
        ):
            worker.join(TIMEOUT)
        if not worker.is_alive():
            fleet.record_fault(f"SIGKILL {moment} a sync (by {by})", worker.pid)
            return


@contextmanager
def _traced(directory: Path, worker: ForkServerProcess, number: int) -> Iterator[None]:
    tracer = subprocess.Popen(
        [
            *("strace", "-f", "-qq", "-o", os.devnull, "-p", str(worker.pid)),
            *("-P", str(directory / BASE), "-P", str(directory / f"{BASE}-wal")),
            *("-e", "trace=fsync,fdatasync"),
            *("-e", f"inject=fsync,fdatasync:signal=SIGKILL:when={number}"),
        ]
    )
    try:
        yield
    finally:
        tracer.terminate()
        tracer.wait()


@contextmanager
def _requested(directory: Path, worker: ForkServerProcess, what: str) -> Iterator[None]:
    request = switch(directory / "disk", KILLING, worker.pid)
    draft = request.with_suffix(".new")
    draft.write_text(what)
    draft.rename(request)
    try:
        yield
    finally:
        with suppress(FileNotFoundError):
            request.unlink()


@lru_cache(maxsize=1)
def can_trace() -> bool:
    """Whether strace is installed and may attach to another process."""
    if shutil.which("strace") is None:
        return False
    with subprocess.Popen(["sleep", "60"]) as victim:
        arguments = ["strace", "-qq", "-o", os.devnull, "-p", str(victim.pid)]
        tracer = subprocess.Popen(arguments, stderr=subprocess.DEVNULL)
        with suppress(subprocess.TimeoutExpired):
            tracer.wait(0.5)
        allowed = tracer.poll() is None
        victim.kill()
        tracer.wait()
    return allowed
