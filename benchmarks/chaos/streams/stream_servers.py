"""Two web servers and the process of the stream readers of a storm."""

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
from benchmarks.chaos.streams.transcript_checks import stream_counts

SERVERS = 2
TIMEOUT = 120.0  # seconds for the next reader to receive the end of its job
CHECK_INTERVAL = 0.05
OTHER_FILES = 500  # open files of a process other than streams
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
        self._keeper = Thread(target=self._replace_servers)
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

    def _replace_servers(self) -> None:
        while not self._ending.wait(CHECK_INTERVAL):
            for number, server in enumerate(self._servers):
                if server.poll() is not None and not self._ending.is_set():
                    self._servers[number] = self._serve(number)

    def end(self) -> list[str]:
        found = []
        code = self._wait_for_readers()
        if code is None:
            done = stream_counts(self._directory)["done"]
            found.append(
                f"{done:,} readers received the end of their jobs, no other within {TIMEOUT:g} s"
            )
        elif code != 0:
            found.append(f"the readers exited with {code}; see their log")
        self._ending.set()
        self._keeper.join()
        for server in self._servers:
            server.terminate()
            if server.wait(TIMEOUT) not in {
                0,
                -SIGTERM,
            }:  # -SIGTERM: before the handler was installed
                found.append(f"a stopped web server exited with {server.returncode}")
        return found

    def _wait_for_readers(self) -> int | None:
        """Return the exit code of the readers; wait while more of them complete."""
        done, deadline = -1, 0.0
        while self._readers.poll() is None:
            before, done = done, stream_counts(self._directory)["done"]
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
    _raise_file_limit(
        json.loads((directory / "plan.json").read_text())["connections"] + OTHER_FILES
    )
    stream_servers = StreamServers(directory)
    problems: list[str] = []
    try:
        yield problems
        problems.extend(stream_servers.end())
    finally:
        stream_servers.abandon()


def _raise_file_limit(files: int) -> None:
    """Raise the limit of open files: while one server is down, the other has all readers."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unbounded = resource.RLIM_INFINITY
    if hard != unbounded and hard < files:
        raise OSError(
            f"each process of this storm opens up to {files:,} files; the limit is {hard:,}: "
            "raise it (`ulimit -Hn`, as root), or use fewer --connections"
        )
    if soft != unbounded and soft < files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        port: int = found.getsockname()[1]
        return port
