"""Faults: each one disturbs processes of a fleet and records it in the ledger."""

from __future__ import annotations

import time
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from signal import SIGCONT, SIGKILL, SIGSTOP, SIGTERM

from benchmarks.chaos.processes.fleet import SWEEP_INTERVAL, Fleet
from benchmarks.chaos.processes.job_quota import allowed
from benchmarks.chaos.processes.producer import RETRY_DELAY
from benchmarks.chaos.processes.settle_recorder import freeze_at_settle
from benchmarks.chaos.stores import PostgresStorage

ALL_KILLED = "SIGKILL of all"
SWEEPER = "SIGKILL of a sweeper"
FROZEN_WITH_LOCK = "frozen with the write lock"
CRASH = "crash of the server"
BACKEND = "backend terminated"
_SETTLE_TIMEOUT = 5.0  # seconds in which a busy worker settles something
_SWEEPER_CHANCE = 0.2
_AT_SETTLE_CHANCE = 0.8
_MAX_BACKENDS = 4  # terminated at once


def kill(fleet: Fleet, _: float) -> None:
    """Kill a worker, and sometimes a process that only sweeps."""
    fleet.send_signal(fleet.any_worker(), SIGKILL)
    if fleet.sweepers and fleet.random.random() < _SWEEPER_CHANCE:
        fleet.send_signal(fleet.random.choice(fleet.sweepers), SIGKILL, SWEEPER)


def kill_all(fleet: Fleet, _: float) -> None:
    processes = [process for process in fleet.all_processes if process.is_alive()]
    for process in processes:
        fleet.send_signal(process, SIGKILL)
    for process in processes:
        process.join()
    fleet.record_fault(ALL_KILLED)


def freeze(fleet: Fleet, lease: float) -> None:
    """Freeze some workers until others have their jobs, then continue them.

    Most freeze between the end of a task and its settle, so their settle is certainly late.
    """
    frozen = fleet.random.sample(fleet.workers, fleet.faults_per_injection)
    for number, worker in enumerate(frozen):
        if number == 0 or fleet.random.random() < _AT_SETTLE_CHANCE:
            _freeze_at_settle(fleet.directory, worker)
        fleet.send_signal(worker, SIGSTOP)
    if fleet.store.is_write_blocked(fleet.directory):
        fleet.record_fault(FROZEN_WITH_LOCK)
    time.sleep(lease + 1.5 * SWEEP_INTERVAL)
    for worker in frozen:
        fleet.send_signal(worker, SIGCONT)


def _freeze_at_settle(directory: Path, worker: ForkServerProcess) -> None:
    """Make the worker freeze at its next settle; return after the timeout if it settles nothing."""
    assert worker.pid is not None
    request = freeze_at_settle(directory, worker.pid)
    deadline = time.monotonic() + _SETTLE_TIMEOUT
    while worker.is_alive() and not _stopped(worker.pid):
        if time.monotonic() > deadline:
            try:
                request.unlink()
            except FileNotFoundError:
                continue  # the worker has read it and is about to stop
            return
        time.sleep(0.005)


def _stopped(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in {"T", "t"}
    except FileNotFoundError:
        return False


def replace_worker(fleet: Fleet, _: float) -> None:
    worker = fleet.any_worker()
    fleet.stop(worker)
    fleet.record_fault(SIGTERM.name, worker.pid)


def any_worker_fault(fleet: Fleet, lease: float) -> None:
    fault = fleet.random.choices((kill, replace_worker, freeze, kill_all), (4, 4, 1, 1))[0]
    fault(fleet, lease)


def kill_or_freeze(fleet: Fleet, lease: float) -> None:
    fault = fleet.random.choices((kill, freeze), (5, 1))[0]
    fault(fleet, lease)


# -- faults of a server


def crash_server(fleet: Fleet, _: float) -> None:
    """Crash the server: all backends die, and the server recovers from its WAL.

    The producers get their next share of jobs just before, so the crash interrupts them, too.
    """
    assert isinstance(fleet.store, PostgresStorage)
    shares = fleet.faults[CRASH] + 2  # that the producers have by now
    fleet.allow(allowed(fleet.directory) * (shares + 1) // shares)
    time.sleep(fleet.random.uniform(0, 2 * RETRY_DELAY))
    fleet.store.crash()
    fleet.record_fault(CRASH)


def terminate_backends(fleet: Fleet, _: float) -> None:
    """Terminate a few connections on the server."""
    assert isinstance(fleet.store, PostgresStorage)
    count, seed = fleet.random.randint(1, _MAX_BACKENDS), fleet.random.getrandbits(32)
    for pid in fleet.store.terminate_backends(fleet.directory, count, seed):
        fleet.record_fault(BACKEND, pid)
