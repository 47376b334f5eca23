"""Processes of a measurement, with requests and responses as lines of JSON."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


class ChildProcess:
    """A module of this package that runs in its own process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.pid = process.pid

    def call(self, **facts: Any) -> Any:
        assert self._process.stdin is not None
        print(json.dumps(facts), file=self._process.stdin, flush=True)
        return self.receive()

    def receive(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self._process.args!r} ended with {self._process.wait()}")
        return json.loads(line)

    @property
    def cpu_seconds(self) -> float:
        """Return the used CPU time in seconds."""
        text = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(text[11]) + int(text[12])) / os.sysconf("SC_CLK_TCK")

    @property
    def memory(self) -> int:
        """Return the resident memory in bytes."""
        text = Path(f"/proc/{self.pid}/status").read_text()
        found = next(line for line in text.splitlines() if line.startswith("VmRSS"))
        return int(found.split()[1]) * 1024


@contextlib.contextmanager
def start_child(module: str, *arguments: str) -> Iterator[ChildProcess]:
    command = [sys.executable, "-m", f"benchmarks.server.{module}", *arguments]
    process = subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield ChildProcess(process)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        process.terminate()
        process.wait(30)
        assert process.stdout is not None
        process.stdout.close()
