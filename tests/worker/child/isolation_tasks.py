"""Tasks that child processes can find, some of which kill the process they run in."""

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
    for n in range(1, number + 1):
        ctx.log(f"counted {n}")
    return os.getpid(), number


@tasks.task(executor="process", crash_cap=2, backoff=fixed(0))
def die(how: str) -> None:
    if how == "segfault":
        ctypes.string_at(0)
    elif how == "exit":
        os._exit(3)
    os.kill(os.getpid(), signal.SIGKILL)


@tasks.task(executor="process", timeout=0.5, max_retries=0)
def hang() -> None:
    stuck()


@tasks.task(executor="process")
def stuck() -> None:
    ctypes.PyDLL(None).sleep(600)  # holds the interpreter all the while


@tasks.task
async def where() -> int:
    await asyncio.sleep(0)
    return os.getpid()


@tasks.task
async def where_by_context(ctx: Context) -> int:
    assert ctx.state == "state"
    return os.getpid()


@tasks.task(backoff=fixed(0))
async def kill_my_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@asynccontextmanager
async def fresh(place: Path) -> AsyncIterator[Windlass]:
    app = Windlass(f"sqlite:///{place}/jobs.db?durability=off", data=place / "data")
    app.include(tasks)
    yield app
    await app.aclose()


def descendants(pid: int) -> set[int]:
    """Every process below this one; on Linux."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = (entry / "stat").read_text()
            except OSError:
                continue
            parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    found: set[int] = set()
    while more := {child for child, parent in parents.items() if parent in {pid, *found}} - found:
        found |= more
    return found
