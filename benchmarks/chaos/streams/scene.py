"""Two servers and the readers, beside the workers and producers of a storm."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from signal import SIGKILL, SIGTERM, SIGUSR1
from threading import Event, Thread

from benchmarks.chaos.bases import BASES
from benchmarks.chaos.fleet import Fleet
from benchmarks.chaos.ledger import CALM
from benchmarks.chaos.processes import keeping_bytecode
from benchmarks.chaos.streams.transcripts import counted

SERVERS = 2
PATIENCE = 120.0  # seconds for the next reader to receive the end of its job
LOOK = 0.05
KILLED = "SIGKILL of a web server"
STOPPED = "SIGTERM of a web server"
HUNG_UP = "a fifth of the readers hung up"
READERS = "readers.pid"
MOST = 0.5  # of all readers
OTHERS = 500  # files that a process has open beside the streams
ROOT = Path(__file__).parents[3]


class Scene:
    """Replaces ended servers on the same port. `end` returns the problems."""

    def __init__(self, place: Path) -> None:
        self._place = place
        self._ports = [_free_port() for _ in range(SERVERS)]
        self._servers = [self._serve(number) for number in range(SERVERS)]
        urls = [f"http://127.0.0.1:{port}" for port in self._ports]
        self._readers = self._start(
            "readers", "benchmarks.chaos.streams.readers", str(place), *urls
        )
        self._ending = Event()
        self._keeper = Thread(target=self._keep)
        self._keeper.start()

    def _serve(self, number: int) -> subprocess.Popen[bytes]:
        url = BASES["postgresql"].url(self._place)
        port = str(self._ports[number])
        return self._start(f"server-{number}", "windlass", "serve", "--url", url, "--port", port)

    def _start(self, name: str, module: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self._place / "log" / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                cwd=ROOT,
                env=os.environ | keeping_bytecode(),
                stdout=log,
                stderr=log,
            )
        draft = self._place / "streams" / "draft"
        draft.write_text(str(process.pid))
        draft.replace(self._place / "streams" / f"{name}.pid")
        return process

    def _keep(self) -> None:
        while not self._ending.wait(LOOK):
            for number, server in enumerate(self._servers):
                if server.poll() is not None and not self._ending.is_set():
                    self._servers[number] = self._serve(number)

    def end(self) -> list[str]:
        wrong = []
        code = self._wait_for_readers()
        if code is None:
            done = counted(self._place)["done"]
            wrong.append(f"{done:,} readers saw the end of their jobs, no other in {PATIENCE:g} s")
        elif code != 0:
            wrong.append(f"the readers ended with {code}; see log")
        self._ending.set()
        self._keeper.join()
        for server in self._servers:
            server.terminate()
            if server.wait(PATIENCE) not in {0, -SIGTERM}:  # before its handler was installed
                wrong.append(f"a web server that was asked to stop ended with {server.returncode}")
        return wrong

    def _wait_for_readers(self) -> int | None:
        """How they ended. As long as some see the end of their jobs, it waits for the others."""
        done, deadline = -1, 0.0
        while self._readers.poll() is None:
            before, done = done, counted(self._place)["done"]
            if done > before:
                deadline = time.monotonic() + PATIENCE
            if time.monotonic() > deadline:
                return None
            time.sleep(LOOK)
        return self._readers.returncode

    def abandon(self) -> None:
        self._ending.set()
        self._keeper.join()
        for process in (*self._servers, self._readers):
            process.kill()
            process.wait()


@contextlib.contextmanager
def served(place: Path) -> Iterator[list[str]]:
    (place / "streams").mkdir()
    _let_open(json.loads((place / "plan.json").read_text())["connections"] + OTHERS)
    scene = Scene(place)
    complaints: list[str] = []
    try:
        yield complaints
        complaints.extend(scene.end())
    finally:
        scene.abandon()


def _let_open(files: int) -> None:
    """For the processes that this one starts: while a server is away, the other has all readers."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unbounded = resource.RLIM_INFINITY
    if hard != unbounded and hard < files:
        raise OSError(
            f"each process of this storm opens up to {files:,} files, and may open {hard:,} here: "
            "raise the limit (`ulimit -Hn`, as root), or ask for fewer --connections"
        )
    if soft != unbounded and soft < files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port


def break_streams(fleet: Fleet, _: float) -> None:
    """Kill or stop a server, disconnect readers, or sometimes kill a worker.

    Only while most readers have a stream, so that each fault has an effect on a slow machine, too.
    The jobs write events until there were enough faults.
    """
    turn, connections = sum(fleet.faults.values()), fleet.plan.connections
    if turn >= strikes(connections):
        (fleet.place / CALM).touch()
    elif counted(fleet.place)["now"] < MOST * connections:
        return
    elif turn % 2:
        _hurt(fleet, READERS, SIGUSR1, HUNG_UP)
    elif turn % 8 == 6:
        fleet.hurt(fleet.any_worker(), SIGKILL)
    else:
        server = f"server-{turn // 2 % SERVERS}.pid"
        _hurt(fleet, server, *((SIGTERM, STOPPED) if turn % 4 else (SIGKILL, KILLED)))


def strikes(connections: int) -> int:
    """How many faults so many readers have to bear."""
    return max(8, connections // 200)


def _hurt(fleet: Fleet, name: str, number: int, what: str) -> None:
    pid = int((fleet.place / "streams" / name).read_text())
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
        fleet.struck(what, pid)
