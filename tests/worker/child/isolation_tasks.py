"""Tasks that child processes can import; some kill their process or block its interpreter."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from windlass import Context, Tasks, Windlass, fixed

tasks = Tasks()


@tasks.task(executor="process")
def count(ctx: Context, number: int) -> tuple[int, int]:
    for line in range(1, number + 1):
        ctx.log(f"counted {line}")
    return os.getpid(), number


@tasks.task(executor="process", crash_cap=2, backoff=fixed(0))
def die(how: str) -> None:
    if how == "segfault":
        ctypes.string_at(0)
    elif how == "exit":
        os._exit(3)
    os.kill(os.getpid(), signal.SIGKILL)


@tasks.task(executor="process", timeout=0.5, max_retries=0)
def time_out() -> None:
    block_interpreter()


@tasks.task(executor="process")
def block_interpreter() -> None:
    ctypes.PyDLL(None).sleep(600)  # holds the interpreter's lock


@tasks.task
async def get_pid() -> int:
    await asyncio.sleep(0)
    return os.getpid()


@tasks.task
async def get_pid_with_state(ctx: Context) -> int:
    assert ctx.state == "state"
    return os.getpid()


@tasks.task(backoff=fixed(0))
async def kill_my_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@asynccontextmanager
async def make_app(directory: Path) -> AsyncIterator[Windlass]:
    app = Windlass(f"sqlite:///{directory}/jobs.db?durability=off", data=directory / "data")
    app.include(tasks)
    yield app
    await app.aclose()


def descendants(pid: int) -> set[int]:
    """Return all descendants of a process, on Linux."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    found: set[int] = set()
    while new := {child for child, parent in parents.items() if parent in {pid, *found}} - found:
        found |= new
    return found
