"""Reads of the process table, and waits for processes and files."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import time
from pathlib import Path

WAIT_TIMEOUT = 20.0


def alive(pid: int) -> bool:
    """Whether the process runs. A process that has ended and is not reaped does not run."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def wait_until_gone(*pids: int) -> None:
    deadline = time.monotonic() + WAIT_TIMEOUT
    while any(alive(pid) for pid in pids):
        assert time.monotonic() < deadline, f"still running: {[pid for pid in pids if alive(pid)]}"
        time.sleep(0.01)


def wait_for_file(file: Path) -> None:
    deadline = time.monotonic() + WAIT_TIMEOUT
    while not file.exists():
        assert time.monotonic() < deadline, f"no {file}"
        time.sleep(0.005)


def hold_the_interpreter(mark: str) -> None:
    """Keep the interpreter's lock in an endless C call; the call creates the file."""
    command = f'trap "" TERM; touch "{mark}"; exec sleep 600'
    ctypes.PyDLL(None).system(command.encode())


async def until_gone(*pids: int) -> None:
    await asyncio.to_thread(wait_until_gone, *pids)


def descriptors() -> set[str]:
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found.add(f"{entry.name} {entry.readlink()}")
        except OSError:
            continue  # the descriptor of this listing
    return found


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def children() -> set[int]:
    """Return the children of this process, also ended ones that are not reaped."""
    return {
        int(pid)
        for tasks in Path("/proc/self/task").iterdir()
        for pid in (tasks / "children").read_text().split()
    }
