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
from signal import SIGTERM
from threading import Event, Thread

from benchmarks.chaos.processes.setup import bytecode_environment
from benchmarks.chaos.stores import STORES
from benchmarks.chaos.streams.transcript_checks import counted

SERVERS = 2
TIMEOUT = 120.0  # seconds for the next reader to receive the end of its job
CHECK_INTERVAL = 0.05
OTHERS = 500  # files that a process has open beside the streams
ROOT = Path(__file__).parents[3]


class StreamServers:
    """Replaces ended servers on the same port. `end` returns the problems."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._ports = [_free_port() for _ in range(SERVERS)]
        self._servers = [self._serve(number) for number in range(SERVERS)]
        urls = [f"http://127.0.0.1:{port}" for port in self._ports]
        self._readers = self._start(
            "readers", "benchmarks.chaos.streams.readers", str(directory), *urls
        )
        self._ending = Event()
        self._keeper = Thread(target=self._keep)
        self._keeper.start()

    def _serve(self, number: int) -> subprocess.Popen[bytes]:
        url = STORES["postgresql"].url(self._directory)
        port = str(self._ports[number])
        return self._start(f"server-{number}", "windlass", "serve", "--url", url, "--port", port)

    def _start(self, name: str, module: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self._directory / "log" / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                cwd=ROOT,
                env=os.environ | bytecode_environment(),
                stdout=log,
                stderr=log,
            )
        draft = self._directory / "streams" / "draft"
        draft.write_text(str(process.pid))
        draft.replace(self._directory / "streams" / f"{name}.pid")
        return process

    def _keep(self) -> None:
        while not self._ending.wait(CHECK_INTERVAL):
            for number, server in enumerate(self._servers):
                if server.poll() is not None and not self._ending.is_set():
                    self._servers[number] = self._serve(number)

    def end(self) -> list[str]:
        wrong = []
        code = self._wait_for_readers()
        if code is None:
            done = counted(self._directory)["done"]
            wrong.append(
                f"{done:,} readers received the end of their jobs, no other within {TIMEOUT:g} s"
            )
        elif code != 0:
            wrong.append(f"the readers exited with {code}; see their log")
        self._ending.set()
        self._keeper.join()
        for server in self._servers:
            server.terminate()
            if server.wait(TIMEOUT) not in {0, -SIGTERM}:  # before its handler was installed
                wrong.append(f"a stopped web server exited with {server.returncode}")
        return wrong

    def _wait_for_readers(self) -> int | None:
        """How they ended. As long as some see the end of their jobs, it waits for the others."""
        done, deadline = -1, 0.0
        while self._readers.poll() is None:
            before, done = done, counted(self._directory)["done"]
            if done > before:
                deadline = time.monotonic() + TIMEOUT
            if time.monotonic() > deadline:
                return None
            time.sleep(CHECK_INTERVAL)
        return self._readers.returncode

    def abandon(self) -> None:
        self._ending.set()
        self._keeper.join()
        for process in (*self._servers, self._readers):
            process.kill()
            process.wait()


@contextlib.contextmanager
def with_stream_servers(directory: Path) -> Iterator[list[str]]:
    (directory / "streams").mkdir()
    _let_open(json.loads((directory / "plan.json").read_text())["connections"] + OTHERS)
    stream_servers = StreamServers(directory)
    problems: list[str] = []
    try:
        yield problems
        problems.extend(stream_servers.end())
    finally:
        stream_servers.abandon()


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
