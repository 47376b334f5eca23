"""Faults of event streams: killed and stopped web servers, and disconnected readers."""

from __future__ import annotations

import contextlib
import os
from signal import SIGKILL, SIGTERM, SIGUSR1

from benchmarks.chaos.ledger import QUIET
from benchmarks.chaos.processes.fleet import Fleet
from benchmarks.chaos.streams.stream_servers import SERVERS
from benchmarks.chaos.streams.transcript_checks import stream_counts

KILLED = "SIGKILL of a web server"
STOPPED = "SIGTERM of a web server"
DISCONNECTED = "a fifth of the readers disconnected"
READERS = "readers.pid"
MIN_OPEN = 0.5  # share of readers with an open stream


def break_streams(fleet: Fleet, _: float) -> None:
    """Kill or stop a server, disconnect readers, or sometimes kill a worker.

    Faults wait until most readers have a stream, so that each has an effect on a slow machine, too.
    The jobs write events until the last fault.
    """
    number, connections = sum(fleet.faults.values()), fleet.plan.connections
    if number >= fault_count(connections):
        (fleet.directory / QUIET).touch()
    elif stream_counts(fleet.directory)["now"] < MIN_OPEN * connections:
        return
    elif number % 2:
        _signal_process(fleet, READERS, SIGUSR1, DISCONNECTED)
    elif number % 8 == 6:
        fleet.send_signal(fleet.any_worker(), SIGKILL)
    else:
        server = f"server-{number // 2 % SERVERS}.pid"
        _signal_process(fleet, server, *((SIGTERM, STOPPED) if number % 4 else (SIGKILL, KILLED)))


def fault_count(connections: int) -> int:
    """Return the number of faults for this many readers."""
    return max(8, connections // 200)


def _signal_process(fleet: Fleet, name: str, number: int, what: str) -> None:
    pid = int((fleet.directory / "streams" / name).read_text())
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
        fleet.record_fault(what, pid)
