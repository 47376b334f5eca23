"""The tasks of a storm: each attempt records its start, writes to the register, and ends.

Tasks without limits never raise: every failure of their jobs has an outside cause.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import resource
import signal
import time
from typing import Any

from benchmarks.chaos import fenced_register
from benchmarks.chaos.ledger import QUIET, note, storm_directory
from windlass import Context, Snooze, Windlass, fixed

app = Windlass()
MIB = 1024 * 1024
MEMORY = 48  # MiB
HIGH_CRASH_CAP = 1000  # the crash cap of jobs with many killed workers


def record(ctx: Context, phase: str, **more: Any) -> None:
    facts: dict[str, Any] = {"job": str(ctx.job.id), "attempt": ctx.attempt, "fence": ctx.fence}
    note("task", **facts, pid=os.getpid(), phase=phase, **more)


def finish(ctx: Context, **more: Any) -> dict[str, Any]:
    applied = fenced_register.put(storm_directory(), str(ctx.job.id), ctx.fence)
    record(ctx, "end", applied=applied, **more)
    return {"job": str(ctx.job.id), "fence": ctx.fence}


async def _work(ctx: Context, seconds: float) -> dict[str, object]:
    record(ctx, "start")
    (ctx.workspace / "half-done").write_text(str(ctx.fence))
    await asyncio.sleep(seconds)
    return finish(ctx)


@app.task(crash_cap=HIGH_CRASH_CAP, backoff=fixed(0.1))
async def work(ctx: Context, seconds: float) -> dict[str, object]:
    return await _work(ctx, seconds)


@app.task
async def plain(ctx: Context, seconds: float) -> dict[str, object]:
    """The same with the default crash cap."""
    return await _work(ctx, seconds)


@app.task(crash_cap=HIGH_CRASH_CAP, backoff=fixed(0.1))
def stepped(ctx: Context, seconds: float) -> dict[str, object]:
    """Runs on a thread, in two steps that are not repeated after their record."""

    def step(name: str) -> int:
        record(ctx, "step", step=name)
        time.sleep(seconds / 2)
        return ctx.fence

    record(ctx, "start")
    for name in ("first", "second"):
        ctx.step(name, step, name)
    return finish(ctx)


@app.task(crash_cap=HIGH_CRASH_CAP, backoff=fixed(0.1))
async def blocking(ctx: Context, seconds: float) -> dict[str, object]:
    """Blocks its worker's event loop until its end."""
    record(ctx, "start")
    time.sleep(seconds)  # noqa: ASYNC251 - blocks on purpose
    return finish(ctx)


@app.task(backoff=fixed(0.1))
async def killer(ctx: Context, seconds: float) -> None:
    """Kills the worker process that it runs in."""
    record(ctx, "start")
    await asyncio.sleep(seconds)
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(executor="process")
def in_child(ctx: Context, seconds: float) -> dict[str, object]:
    """A plain task in a child process, with the default crash cap."""
    record(ctx, "start")
    (ctx.workspace / "half-done").write_text(str(ctx.fence))
    time.sleep(seconds)
    return finish(ctx)


@app.task(executor="process", backoff=fixed(0.1))
def segfault(ctx: Context, seconds: float) -> None:
    """Reads invalid memory, like a bug in a C library."""
    record(ctx, "start")
    time.sleep(seconds)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    note("driver", fault="SIGSEGV", pid=os.getpid())
    ctypes.string_at(0)


@app.task(executor="process", backoff=fixed(0.1))
def memory_hog(ctx: Context, seconds: float) -> None:
    """Allocates memory up to a limit and kills itself, like the OOM killer."""
    record(ctx, "start")
    held = [bytearray(os.urandom(MIB)) for _ in range(MEMORY)]
    time.sleep(seconds)
    note("driver", fault="out of memory", pid=os.getpid(), held=len(held))
    os.kill(os.getpid(), signal.SIGKILL)


@app.task(crash_cap=HIGH_CRASH_CAP, backoff=fixed(0.1))
async def log_writer(ctx: Context, seconds: float) -> dict[str, object]:
    """Writes log events while streams have faults.

    The texts contain characters that are special in a stream.
    """
    record(ctx, "start")
    number = 0
    while not (storm_directory() / QUIET).exists():
        number += 1
        ctx.log(f"{ctx.fence}.{number}\r\n\n\u2028data: {{}}\n\n")
        if number % 3 == 0:
            ctx.progress(min(99, number), f"line {number}")
        await asyncio.sleep(seconds)
    return finish(ctx)


# -- tasks with limits


KEYS = 4


async def _flaky(ctx: Context, seconds: float) -> dict[str, object]:
    """Some first attempts raise and some snooze: both release a permit."""
    record(ctx, "start")
    await asyncio.sleep(seconds)
    draw = ctx.job.id.int % 6 if ctx.attempt == 1 else None
    if draw == 0:
        record(ctx, "raise")
        raise RuntimeError("failure on purpose")
    if draw == 1:
        record(ctx, "snooze")
        raise Snooze(0.2)
    return finish(ctx)


@app.task(crash_cap=HIGH_CRASH_CAP, backoff=fixed(0.1))
async def rated(ctx: Context, seconds: float) -> dict[str, object]:
    return await _flaky(ctx, seconds)


@app.task(
    crash_cap=HIGH_CRASH_CAP,
    backoff=fixed(0.1),
    limit_key=lambda seconds: str(round(seconds * 1_000_000) % KEYS),
)
async def keyed(ctx: Context, seconds: float) -> dict[str, object]:
    return await _flaky(ctx, seconds)


_leak: list[bytearray] = []


@app.task
async def leaky(ctx: Context, seconds: float) -> dict[str, object]:
    """Leaks memory of its worker."""
    record(ctx, "start")
    _leak.append(bytearray(os.urandom(8 * MIB)))
    await asyncio.sleep(seconds)
    return finish(ctx)
