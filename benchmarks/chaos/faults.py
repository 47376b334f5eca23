"""Faults: each one disturbs processes of a fleet and records it in the ledger."""

from __future__ import annotations

import time
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM

from benchmarks.chaos.processes.fleet import SWEEP, Fleet
from benchmarks.chaos.processes.job_quota import allowed
from benchmarks.chaos.processes.producer import RETRY_DELAY
from benchmarks.chaos.processes.settle_recorder import freeze_at_settle
from benchmarks.chaos.stores import PostgresStorage

TREE = "of everything"
SWEEPER = "SIGKILL of a sweeper"
STUCK = "frozen with the write lock"
CRASH = "crash of the server"
BACKEND = "backend ended"
_MOMENT = 5.0  # seconds in which a worker that is at work settles something
_SWEEPER_TOO = 0.2
_AT_SETTLE = 0.8
_MOST_BACKENDS = 4  # ended at once


def kill(fleet: Fleet, _: float) -> None:
    """A worker, and now and then a process that only sweeps."""
    fleet.send_signal(fleet.any_worker(), SIGKILL)
    if fleet.sweepers and fleet.random.random() < _SWEEPER_TOO:
        fleet.send_signal(fleet.random.choice(fleet.sweepers), SIGKILL, SWEEPER)


def kill_all(fleet: Fleet, _: float) -> None:
    everything = [process for process in fleet.everything if process.is_alive()]
    for process in everything:
        fleet.send_signal(process, SIGKILL)
    for process in everything:
        process.join()
    fleet.record_fault(TREE)


def freeze(fleet: Fleet, lease: float) -> None:
    """Freeze some workers until others have their jobs, then continue them.

    Most freeze between the end of a task and its settle, so their settle is certainly late.
    """
    asleep = fleet.random.sample(fleet.workers, fleet.hits)
    for number, worker in enumerate(asleep):
        if number == 0 or fleet.random.random() < _AT_SETTLE:
            _until_asleep(fleet.directory, worker)
        fleet.send_signal(worker, SIGSTOP)
    if fleet.store.is_write_blocked(fleet.directory):
        fleet.record_fault(STUCK)
    time.sleep(lease + 1.5 * SWEEP)
    for worker in asleep:
        fleet.send_signal(worker, SIGCONT)


def _until_asleep(directory: Path, worker: ForkServerProcess) -> None:
    """Have it stop itself at its next settle; one that settles nothing is left to be stopped."""
    assert worker.pid is not None
    order = freeze_at_settle(directory, worker.pid)
    deadline = time.monotonic() + _MOMENT
    while worker.is_alive() and not _stopped(worker.pid):
        if time.monotonic() > deadline:
            try:
                order.unlink()
            except FileNotFoundError:
                continue  # it has read it, and is about to stop
            return
        time.sleep(0.005)


def _stopped(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in {"T", "t"}
    except FileNotFoundError:
        return False


def replace(fleet: Fleet, _: float) -> None:
    worker = fleet.any_worker()
    fleet.stop(worker)
    fleet.record_fault(SIGTERM.name, worker.pid)


def any_of_them(fleet: Fleet, lease: float) -> None:
    one = fleet.random.choices((kill, replace, freeze, kill_all), (4, 4, 1, 1))[0]
    one(fleet, lease)


def kill_or_freeze(fleet: Fleet, lease: float) -> None:
    one = fleet.random.choices((kill, freeze), (5, 1))[0]
    one(fleet, lease)


# -- of a server


def crash_server(fleet: Fleet, _: float) -> None:
    """All backends die in the middle of what they do, and the server recovers from its log.

    The next share of the jobs is let out just before, so that it meets producers, too.
    """
    assert isinstance(fleet.store, PostgresStorage)
    shares = fleet.faults[CRASH] + 2  # that are out by now
    fleet.allow(allowed(fleet.directory) * (shares + 1) // shares)
    time.sleep(fleet.random.uniform(0, 2 * RETRY_DELAY))
    fleet.store.crash()
    fleet.record_fault(CRASH)


def end_backends(fleet: Fleet, _: float) -> None:
    """End a few connections by the server."""
    assert isinstance(fleet.store, PostgresStorage)
    most, seed = fleet.random.randint(1, _MOST_BACKENDS), fleet.random.getrandbits(32)
    for pid in fleet.store.end_backends(fleet.directory, most, seed):
        fleet.record_fault(BACKEND, pid)
