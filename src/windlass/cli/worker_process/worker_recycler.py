"""`--max-jobs` and `--max-memory`: limits at which a worker exits, to be replaced by a new one.

The limits are checked in an interval, and at the end of each task. Every ended attempt counts, also
of unknown tasks and unreadable payloads. Jobs that run when a limit is reached may finish.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from windlass.app import Windlass
from windlass.core.errors import ConfigurationError
from windlass.core.job.state import State
from windlass.worker import Context, Worker

INTERVAL = 0.5
MIB = 1024 * 1024
_PROC = Path("/proc")


class WorkerRecycler:
    def __init__(self, max_jobs: int | None, max_memory: int | None) -> None:
        self._max_jobs = max_jobs
        self._max_memory = max_memory
        self._ended = 0
        self._check: Callable[[], None] = lambda: None

    def install(self, app: Windlass) -> None:
        """Add a middleware that counts ended tasks.

        Attempts that never call their task (unknown task, unreadable payload) are found by
        polling `worker.settled`.
        """
        if self._max_jobs is None:
            return

        async def counting(ctx: Context, call_next: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ARG001
            try:
                return await call_next()
            finally:
                self._ended += 1
                self._check()

        app.middleware(counting)

    async def run(self, worker: Worker, on_reached: Callable[[str], None]) -> None:
        """Call `on_reached` once, with a description of the limit."""
        if self._max_memory is not None and (used := memory_used()) > self._max_memory:
            raise ConfigurationError(
                f"this worker uses {_mib(used)} before its first job, but --max-memory is "
                f"{_mib(self._max_memory)}; raise the limit"
            )
        done = asyncio.Event()
        if self._max_jobs is None and self._max_memory is None:
            await done.wait()  # no limits: until cancelled

        def check() -> None:
            if not done.is_set() and (limit := self._jobs_reached(worker)) is not None:
                done.set()
                on_reached(limit)

        self._check = check
        while not done.is_set():
            check()
            if (limit := self._memory_reached()) is not None and not done.is_set():
                done.set()
                on_reached(limit)
            await asyncio.sleep(INTERVAL)

    def _jobs_reached(self, worker: Worker) -> str | None:
        if self._max_jobs is None:
            return None
        settled = sum(n for state, n in worker.settled.items() if state is not State.QUEUED)
        if max(self._ended, settled) < self._max_jobs:
            return None
        return f"processed {self._max_jobs:,} attempts (--max-jobs)"

    def _memory_reached(self) -> str | None:
        if self._max_memory is None or (used := memory_used()) <= self._max_memory:
            return None
        return f"uses {_mib(used)}, limit {_mib(self._max_memory)} (--max-memory)"


def _mib(size: int) -> str:
    return f"{size / MIB:,.0f} MiB"


def memory_used() -> int:
    """Return the resident memory of this process and its descendants, in bytes.

    Without /proc, the peak value.
    """
    page = resource.getpagesize()
    if (_PROC / "self/statm").exists():
        return page * sum(_pages(pid) for pid in _process_tree(os.getpid()))
    unit = 1 if sys.platform == "darwin" else 1024
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return unit * (own + resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)


def _pages(pid: int) -> int:
    with contextlib.suppress(OSError, IndexError, ValueError):
        return int((_PROC / str(pid) / "statm").read_text().split()[1])
    return 0  # the process has ended


def _process_tree(pid: int) -> list[int]:
    pids = [pid]
    for parent in pids:  # grows during the loop
        with contextlib.suppress(OSError):
            for thread in (_PROC / str(parent) / "task").iterdir():
                pids += [int(child) for child in (thread / "children").read_text().split()]
    return pids
