"""Ledger of producers, tasks and the driver: fsynced lines of JSON.

Each process has its own file, so no line depends on another process. A line that a kill truncated
is ignored: no process relied on it.
"""

from __future__ import annotations

import json
import os
from functools import lru_cache
from pathlib import Path
from time import time_ns  # the true clock, even if a storm skews `time`
from typing import Any, TypeAlias

STORM_VARIABLE = (
    "CHAOS_STORM_DIRECTORY"  # the environment variable that names the directory of a storm
)
QUIET = "quiet"  # a file in it: no more faults follow, and waiting tasks may end
Line: TypeAlias = dict[str, Any]


def storm_directory() -> Path:
    return Path(os.environ[STORM_VARIABLE])


@lru_cache(maxsize=8)
def _file(directory: Path, role: str, pid: int) -> int:
    path = directory / "ledger" / f"{role}-{pid}-{time_ns()}.jsonl"
    return os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)


def note(role: str, directory: Path | None = None, **facts: Any) -> None:
    """Append a line, with the time in microseconds, and sync it to disk."""
    line = json.dumps({**facts, "at": time_ns() // 1000}) + "\n"
    file = _file(directory or storm_directory(), role, os.getpid())
    os.write(file, line.encode())
    os.fsync(file)


def read(directory: Path, role: str) -> list[Line]:
    """Return all lines of that role, in order of time."""
    lines = [
        line
        for path in sorted((directory / "ledger").glob(f"{role}-*.jsonl"))
        for text in path.read_text("utf-8").split("\n")
        if (line := _parsed(text)) is not None
    ]
    return sorted(lines, key=lambda line: int(line["at"]))


def _parsed(text: str) -> Line | None:
    try:
        line = json.loads(text)
    except ValueError:
        return None
    return line if isinstance(line, dict) else None
