"""`--max-jobs` and `--max-memory`: a worker that has done enough, or grown too large, ends itself.

Waits for: its interval, and each end of a task. Guarantees: every attempt that ended counts, those
of unknown tasks and of payloads that cannot be read, too; what runs beside the last one may finish.
Stops: when cancelled, or once it has spoken.
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


class Limits:
    def __init__(self, max_jobs: int | None, max_memory: int | None) -> None:
        self._max_jobs = max_jobs
        self._max_memory = max_memory
        self._ended = 0
        self._look: Callable[[], None] = lambda: None

    def count(self, app: Windlass) -> None:
        """See the end of each task at once; what never becomes a call is seen by looking."""
        if self._max_jobs is None:
            return

        async def counting(ctx: Context, call_next: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ARG001
            try:
                return await call_next()
            finally:
                self._ended += 1
                self._look()

        app.middleware(counting)

    async def run(self, worker: Worker, reached: Callable[[str], None]) -> None:
        """Call `reached` once, with what was reached."""
        if self._max_memory is not None and (used := memory_used()) > self._max_memory:
            raise ConfigurationError(
                f"this worker needs {_mib(used)} before its first job, and --max-memory is "
                f"{_mib(self._max_memory)}; allow it more"
            )
        done = asyncio.Event()
        if self._max_jobs is None and self._max_memory is None:
            await done.wait()

        def look() -> None:
            if not done.is_set() and (what := self._enough(worker)) is not None:
                done.set()
                reached(what)

        self._look = look
        while not done.is_set():
            look()
            if (what := self._too_much()) is not None and not done.is_set():
                done.set()
                reached(what)
            await asyncio.sleep(INTERVAL)

    def _enough(self, worker: Worker) -> str | None:
        if self._max_jobs is None:
            return None
        settled = sum(n for state, n in worker.settled.items() if state is not State.QUEUED)
        if max(self._ended, settled) < self._max_jobs:
            return None
        return f"{self._max_jobs:,} attempts have ended (--max-jobs)"

    def _too_much(self) -> str | None:
        if self._max_memory is None or (used := memory_used()) <= self._max_memory:
            return None
        return f"it holds {_mib(used)}, more than {_mib(self._max_memory)} (--max-memory)"


def _mib(size: int) -> str:
    return f"{size / MIB:,.0f} MiB"


def memory_used() -> int:
    """Bytes that this process and its descendants hold in memory.

    Where there is no /proc, the most that it ever held: nearest to the truth for what only grows.
    """
    page = resource.getpagesize()
    if (_PROC / "self/statm").exists():
        return page * sum(_pages(pid) for pid in _family(os.getpid()))
    unit = 1 if sys.platform == "darwin" else 1024
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return unit * (own + resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)


def _pages(pid: int) -> int:
    with contextlib.suppress(OSError, IndexError, ValueError):
        return int((_PROC / str(pid) / "statm").read_text().split()[1])
    return 0  # it has ended since


def _family(pid: int) -> list[int]:
    found = [pid]
    for one in found:
        with contextlib.suppress(OSError):
            for thread in (_PROC / str(one) / "task").iterdir():
                found += [int(child) for child in (thread / "children").read_text().split()]
    return found
