"""Faults of event streams: killed and stopped web servers, and disconnected readers."""

from __future__ import annotations

import contextlib
import os
from signal import SIGKILL, SIGTERM, SIGUSR1

from benchmarks.chaos.ledger import QUIET
from benchmarks.chaos.processes.fleet import Fleet
from benchmarks.chaos.streams.stream_servers import SERVERS
from benchmarks.chaos.streams.transcript_checks import counted

KILLED = "SIGKILL of a web server"
STOPPED = "SIGTERM of a web server"
HUNG_UP = "a fifth of the readers hung up"
READERS = "readers.pid"
MOST = 0.5  # of all readers


def break_streams(fleet: Fleet, _: float) -> None:
    """Kill or stop a server, disconnect readers, or sometimes kill a worker.

    Only while most readers have a stream, so that each fault has an effect on a slow machine, too.
    The jobs write events until there were enough faults.
    """
    turn, connections = sum(fleet.faults.values()), fleet.plan.connections
    if turn >= fault_count(connections):
        (fleet.directory / QUIET).touch()
    elif counted(fleet.directory)["now"] < MOST * connections:
        return
    elif turn % 2:
        _hurt(fleet, READERS, SIGUSR1, HUNG_UP)
    elif turn % 8 == 6:
        fleet.send_signal(fleet.any_worker(), SIGKILL)
    else:
        server = f"server-{turn // 2 % SERVERS}.pid"
        _hurt(fleet, server, *((SIGTERM, STOPPED) if turn % 4 else (SIGKILL, KILLED)))


def fault_count(connections: int) -> int:
    """How many faults so many readers have to bear."""
    return max(8, connections // 200)


def _hurt(fleet: Fleet, name: str, number: int, what: str) -> None:
    pid = int((fleet.directory / "streams" / name).read_text())
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
        fleet.record_fault(what, pid)
