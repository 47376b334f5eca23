"""Temporary disk errors in some processes, and a process that is killed at a sync."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from benchmarks.chaos.disk.faults import DEADLY, FAILING, switch
from benchmarks.chaos.disk.liveness import all_survived, stir
from benchmarks.chaos.disk.setup import BASE, prepare
from benchmarks.chaos.fleet import Fleet

MOST_SYNCS = 6
PATIENCE = 2.0  # for a process to reach its last sync; an idle one makes none


@contextmanager
def failing(place: Path) -> Iterator[list[str]]:
    prepare(place, "failing")
    complaints: list[str] = []
    yield complaints
    complaints += all_survived(place)


@contextmanager
def deadly(place: Path) -> Iterator[list[str]]:
    prepare(place, "deadly")
    yield []


def spoil(fleet: Fleet, _: float) -> None:
    """Half of all processes cannot rely on the disk for a while, and then can again."""
    stir(fleet)
    living = [*fleet.workers, *(one for one in fleet.producers.values() if one.is_alive())]
    chosen = fleet.random.sample(living, len(living) // 2)
    switches = [switch(fleet.place / "disk", FAILING, one.pid) for one in chosen]
    for each in switches:
        each.touch()
    time.sleep(fleet.random.uniform(0.3, 1.0))
    for each in switches:
        each.unlink()


def kill_at_sync(fleet: Fleet, _: float) -> None:
    """Before the sync, by the kernel where it lets us; or right after it, by the disk."""
    stir(fleet)
    for worker in fleet.random.sample(fleet.workers, len(fleet.workers)):
        side, number = fleet.random.choice(("before", "after")), fleet.random.randint(1, MOST_SYNCS)
        by = "strace" if side == "before" and can_trace() else "the disk"
        traced = _traced(fleet.place, worker, number)
        with traced if by == "strace" else _ordered(fleet.place, worker, f"{side} {number}"):
            worker.join(PATIENCE)
        if not worker.is_alive():
            fleet.struck(f"SIGKILL {side} a sync (by {by})", worker.pid)
            return


@contextmanager
def _traced(place: Path, worker: ForkServerProcess, number: int) -> Iterator[None]:
    tracer = subprocess.Popen(
        [
            *("strace", "-f", "-qq", "-o", os.devnull, "-p", str(worker.pid)),
            *("-P", str(place / BASE), "-P", str(place / f"{BASE}-wal")),
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
def _ordered(place: Path, worker: ForkServerProcess, what: str) -> Iterator[None]:
    order = switch(place / "disk", DEADLY, worker.pid)
    draft = order.with_suffix(".new")
    draft.write_text(what)
    draft.rename(order)
    try:
        yield
    finally:
        with suppress(FileNotFoundError):
            order.unlink()


@lru_cache(maxsize=1)
def can_trace() -> bool:
    """Whether there is an strace here that may hold on to another process."""
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
