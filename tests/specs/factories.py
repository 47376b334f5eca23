"""Helpers of the specification tests: workers, virtual time, and job histories."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from tests.worker.event_waits import WAIT_TIMEOUT, events_of, wait_for_event
from tests.worker.spy_store import SpyStore
from tests.worker.workers import make_worker

from windlass import Context, Job, NewJob, State, Windlass, Worker
from windlass.core.event import LIFECYCLE, Event, EventType
from windlass.core.job.row import JobRow
from windlass.store import Store
from windlass.testing import VirtualClock

__all__ = ["WAIT_TIMEOUT", "SpyStore", "events_of", "make_worker", "wait_for_event"]
FOREVER = 3600.0
HOUR = 3600.0
SECOND = 1_000_000  # instants are microseconds
PROBE = "probe"
MOMENT = 1e-6


# -- workers


@asynccontextmanager
async def working(
    app: Windlass, slots: int = 10, store: Store | None = None, **values: Any
) -> AsyncIterator[Worker]:
    """Run a worker during the block. At its end, running jobs are released, uncounted."""
    queues = {"default": slots, PROBE: 1, **values.pop("queues", {})}
    worker = make_worker(
        app, store, queues=queues, **{"cancel_poll_interval": 0.01, "grace": 0.01, **values}
    )
    running = asyncio.create_task(worker.run())
    try:
        yield worker
    finally:
        worker.stop()
        await asyncio.wait_for(running, WAIT_TIMEOUT)


async def ended(app: Windlass, *jobs: Job[Any], **values: Any) -> list[JobRow]:
    """Run a worker until these jobs have ended; return their rows."""
    async with working(app, **values):
        return [(await job.await_end(WAIT_TIMEOUT)).row for job in jobs]


async def end(app: Windlass, job: Job[Any], **values: Any) -> JobRow:
    [row] = await ended(app, job, **values)
    return row


def status(wanted: State, attempt: int | None = None) -> Callable[[Event], bool]:
    """For `wait_for_event`: the job is in this state (in this attempt)."""

    def reported(event: Event) -> bool:
        data = event.data
        return data.get("status") == wanted and attempt in {None, data.get("attempt")}

    return reported


async def reach(job: Job[Any], wanted: State, attempt: int | None = None) -> JobRow:
    """Follow the job until it has this state; return its row."""
    await wait_for_event(job, status(wanted, attempt))
    return (await job.arefresh()).row


async def eventually(condition: Callable[[], Any], timeout: float = WAIT_TIMEOUT) -> None:
    """Poll for a condition without an event, such as a directory or a lease."""
    async with asyncio.timeout(timeout):
        while True:
            found = condition()
            if await found if asyncio.iscoroutine(found) else found:
                return
            await asyncio.sleep(0.01)


# -- virtual time


def add_probe(app: Windlass) -> None:
    @app.task(name=PROBE, queue=PROBE)
    async def probe() -> None: ...


async def pass_time(app: Windlass, clock: VirtualClock, seconds: float) -> None:
    """Move the clock; return when a worker has swept all due jobs and expired leases.

    A job due right after the move is promoted by a sweep that started after the move. When a second
    such job runs, that sweep is over.
    """
    clock.advance(seconds)
    for _ in range(2):
        new = NewJob(id=uuid4(), task=PROBE, queue=PROBE, payload=b"{}", delay=MOMENT)
        [probe] = await app.aenqueue_many([new])
        clock.advance(MOMENT)
        await probe.await_end(WAIT_TIMEOUT)


# -- history of a job


async def states_of(job: Job[Any]) -> list[str]:
    """Return the states of an ended job, in order."""
    return [
        e.data["status"] for e in await events_of(job) if e.type in LIFECYCLE - _NO_STATE_CHANGE
    ]


_NO_STATE_CHANGE = {EventType.CANCEL_REQUESTED, EventType.RESYNC}


async def retries(job: Job[Any]) -> list[Event]:
    """Return the events of an ended job that announce a retry."""
    return [e for e in await events_of(job) if e.data.get("status") == State.RETRYING]


async def percents(job: Job[Any]) -> list[int]:
    return [e.data["progressPct"] for e in await events_of(job, EventType.STEP_PROGRESS)]


# -- workspaces


def fill(ctx: Context) -> None:
    (ctx.workspace / "part").write_text("half")
    (ctx.proxy / "small").write_text("film")


def workspace_kinds(data: Path) -> list[str]:
    """Return the kinds of the existing workspaces."""
    return sorted(directory.parent.name for directory in data.glob("*/*"))


def make_old(directory: Path, hours: float) -> Path:
    """Create a workspace with an old modification time."""
    directory.mkdir(parents=True, exist_ok=True)
    then = time.time() - hours * HOUR
    os.utime(directory, (then, then))
    return directory


# -- processes


@contextmanager
def process(code: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Run a Python process for the block."""
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *arguments], stdout=subprocess.PIPE, text=True
    )
    try:
        yield child
    finally:
        kill(child)
        child.communicate()


def kill(child: subprocess.Popen[str]) -> None:
    """Kill without any handler or cleanup, like the kernel when memory runs out."""
    if child.poll() is None:
        child.send_signal(signal.SIGKILL)
    child.wait(WAIT_TIMEOUT)
