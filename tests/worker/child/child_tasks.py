"""Tasks that tests run in child processes, which import this module by its name."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from tests.process.process_table import hold_the_interpreter

from windlass import (
    Cancel,
    Context,
    InvalidInput,
    RetryAfter,
    Snooze,
    Tasks,
    Windlass,
    WindlassError,
)
from windlass.core.job.row import JobRow

app = Windlass("memory:")
group = Tasks()
SENT = threading.Event()
app.include(group)


def write(mark: str, text: str) -> str:
    with Path(mark).open("a") as file:
        file.write(text)
    return Path(mark).read_text()


@app.lifespan
async def lifespan_with_marks() -> AsyncIterator[dict[str, Any]]:
    mark = os.environ.get("SAMPLE_LIFE", os.devnull)
    if mark.endswith("broken"):
        raise OSError("no such model")
    entered_by = asyncio.current_task()
    write(mark, "up ")
    yield {"pid": os.getpid()}
    assert asyncio.current_task() is entered_by  # many context managers require it
    write(mark, "down")


@dataclass
class Order:
    day: date
    items: list[str]


@app.task
def double(order: Order, times: int = 2) -> Order:
    return Order(order.day, order.items * times)


@group.task
async def pid_of(ctx: Context) -> tuple[int, int]:
    await asyncio.sleep(0)
    return os.getpid(), ctx.state["pid"]


@app.task
def pid() -> int:
    return os.getpid()


@app.task
def same(ctx: Context) -> JobRow:
    return ctx.job


class OddError(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@app.task(retry_on=(KeyError, OSError), terminal_on=PermissionError)
def fail(how: str) -> None:
    errors: dict[str, BaseException] = {
        "key": KeyError("the key"),
        "value": ValueError("not in retry_on"),
        "permission": PermissionError("terminal_on wins"),
        "input": InvalidInput("cannot be worked with"),
        "after": RetryAfter("5m", "busy"),
        "snooze": Snooze(7, "zzz"),
        "cancel": Cancel("no longer needed"),
        "exit": SystemExit(3),
        "odd": OddError(),
    }
    raise errors[how]


@app.task
def unstorable_result() -> Any:
    return {"result": object()}


@app.task
def large_result() -> str:
    return "x" * 2_000_000


def emit_everything(ctx: Context) -> str:
    """Use every event method; same in a thread of the worker and in a child."""
    ctx.progress(3)
    ctx.stage("voice")
    ctx.progress(50, "half of it")
    ctx.log("a line", level="debug")
    ctx.log("odd \ud800\0 text" + "x" * 10_000)
    ctx.warn("careful")
    ctx.artifact("film", "file:///film.mp4", 7)
    ctx.emit("output", {"stream": "stdout", "text": "hello"})

    def piece(number: int) -> list[Any]:
        ctx.log("within the step")
        ctx.progress(number)
        return [number, {"kept": None}]

    ctx.stage("render")
    first = ctx.step("first", piece, 80)
    ctx.log(f"after {first}")
    outer: int = ctx.step("outer", lambda: ctx.step("inner", lambda: 1) + 1)
    try:
        ctx.step("broken", dict[str, int]().pop, "nothing")
    except KeyError:
        ctx.step("broken", lambda: "fixed")
    return f"{outer} {ctx.attempt} {ctx.fence} {ctx.cancelled}"


emits = app.task(emit_everything)


@app.task
def refused(ctx: Context, how: str) -> str:
    try:
        if how == "stage":
            ctx.stage("s" * 1000)
        elif how == "kind":
            ctx.emit("nonsense", {})
        elif how == "json":
            ctx.step("s", lambda: {"a": object()})
        elif how == "large":
            ctx.step("s", lambda: "x" * 2_000_000)
        else:
            ctx.enqueue(pid)
    except WindlassError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was refused"


@app.task
async def steps(ctx: Context, mark: str) -> list[str]:
    async def piece(name: str) -> str:
        await asyncio.to_thread(write, mark, name)
        return name

    names = [await ctx.astep(name, piece, name) for name in "ab"]
    await asyncio.gather(*(ctx.astep(name, piece, name) for name in "cd"))
    if ctx.attempt == 1:
        await ctx.flush()
        raise KeyError("after four steps")
    return names


@app.task
def enqueues_child(ctx: Context, fails: bool) -> str:
    child = ctx.then(double.options(priority=3), Order(date(2026, 1, 2), ["a"]))
    if fails:
        raise ValueError("the child is not enqueued")
    return str(child)


@app.task
def fans_out(ctx: Context, days: list[date]) -> list[Any]:
    word = ctx.wait_for("go", timeout=60)
    orders = ctx.map(double.options(tags=("part",)), [Order(day, [word]) for day in days])
    return [order["items"] for order in orders]


@app.task
def writes(ctx: Context) -> list[str]:
    (ctx.workspace / "file").write_text("kept")
    return [str(ctx.workspace), str(ctx.proxy)]


@app.task
def dies(ctx: Context, how: str) -> None:
    for number in range(1, 101):
        ctx.log(f"{number} last line")
    match how:
        case "segfault":
            ctypes.string_at(0)
        case "exit":
            os._exit(3)
        case "close":
            for descriptor in [*Path("/dev/fd").iterdir()]:  # its channel may have any number
                if int(descriptor.name) > 2:
                    with suppress(OSError):  # the listing's own
                        os.close(int(descriptor.name))
            time.sleep(600)
        case _:
            os.kill(os.getpid(), signal.SIGKILL)


@app.task
def stuck(ctx: Context, held: str | None = None) -> None:
    grandchild = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", "import time; time.sleep(600)"]
    )
    try:
        ctx.log(f"{os.getpid()} {grandchild.pid}")
        if held is not None:
            hold_the_interpreter(held)
        time.sleep(600)
    finally:
        ctx.log(f"cleaned up, cancelled: {ctx.cancelled}")


@app.task
async def stuck_async(ctx: Context) -> None:
    try:
        ctx.log(f"{os.getpid()}")
        await asyncio.Event().wait()
    finally:
        await asyncio.sleep(0.01)
        ctx.log(f"cleaned up, cancelled: {ctx.cancelled}")


@app.task
def leaves_a_thread(ctx: Context) -> int:
    def log_repeatedly() -> None:
        while True:
            ctx.log("stale")
            SENT.set()

    threading.Thread(target=log_repeatedly, daemon=True).start()
    return os.getpid()


@app.task
def leaves_a_thread_that_is_sending(ctx: Context) -> int:
    """Return while its own thread is between the check and the write."""
    started = threading.Event()
    send = ctx._parent.send  # type: ignore[attr-defined]

    def send_slowly(message: Any) -> None:
        ctx._parent.send = send  # type: ignore[attr-defined]
        started.set()
        time.sleep(0.3)
        send(message)
        SENT.set()

    def log_slowly() -> None:
        ctx._parent.send = send_slowly  # type: ignore[attr-defined]
        ctx.log("stale")

    threading.Thread(target=log_slowly, daemon=True).start()
    assert started.wait(10)
    return os.getpid()


@app.task
def message_was_sent() -> bool:
    return SENT.wait(10)


@app.task
def stale_thread_sends() -> tuple[int, bool]:
    SENT.clear()
    return os.getpid(), SENT.wait(10)
