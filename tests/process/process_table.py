"""Reads the process table of the operating system."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import time
from pathlib import Path

PATIENCE = 20.0


def alive(pid: int) -> bool:
    """Whether it runs; one that has ended and is not yet reaped does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def wait_until_gone(*pids: int) -> None:
    end = time.monotonic() + PATIENCE
    while any(alive(pid) for pid in pids):
        assert time.monotonic() < end, f"still there: {[pid for pid in pids if alive(pid)]}"
        time.sleep(0.01)


def wait_for(file: Path) -> None:
    end = time.monotonic() + PATIENCE
    while not file.exists():
        assert time.monotonic() < end, f"no {file}"
        time.sleep(0.005)


def hold_the_interpreter(mark: str) -> None:
    """A C call that keeps the interpreter's lock, for good; there is a file when it is in there."""
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
            continue  # the one that lists them
    return found


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def children() -> set[int]:
    """Of this process, those included that have ended and are not reaped."""
    return {
        int(pid)
        for tasks in Path("/proc/self/task").iterdir()
        for pid in (tasks / "children").read_text().split()
    }
