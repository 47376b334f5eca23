"""Pool of warm child processes, each for one job at a time.

A returned child is reused, most recently used first. It is not reused if it has ended, was stopped,
or the block that used it raised an error. Beyond a few spares, idle children are ended.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from typing import Any

from windlass.process.cancellation import run_uncancelled
from windlass.process.child_process import ChildProcess
from windlass.process.groups import ProcessGroups

GRACE = 5.0


class ChildPool:
    """At most `limit` children are in use; further callers wait. Times are in seconds."""

    def __init__(
        self,
        module: str,
        *,
        limit: int,
        spare: int = 2,
        idle: float = 60.0,
        grace: float = GRACE,
    ) -> None:
        self._module = module
        self._semaphore = asyncio.Semaphore(limit)
        self._spares = spare
        self._idle_timeout = idle
        self.grace = grace
        self.groups = ProcessGroups()
        self._all: set[ChildProcess] = set()
        self._free: dict[ChildProcess, asyncio.TimerHandle] = {}  # most recently used last
        self._ending: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def pids(self) -> list[int]:
        """Process ids of all running children."""
        return [process.pid for process in self._all]

    @contextlib.asynccontextmanager
    async def take(self) -> AsyncIterator[ChildProcess]:
        """Borrow a child for the block. If the block raises, the child is ended first."""
        async with self._semaphore:
            process = self._take()
            try:
                yield process
            except BaseException:
                await run_uncancelled(self._end(process))
                raise
            if process.ended.done() or self._closed:
                await run_uncancelled(self._end(process))
            else:
                self._park(process)

    def _take(self) -> ChildProcess:
        if self._closed:
            raise RuntimeError("this process pool is closed")
        while self._free:
            process, timer = self._free.popitem()
            timer.cancel()
            if not process.ended.done():
                return process
            process.close()
        process = ChildProcess(self._module, self.groups)
        self._all.add(process)
        process.ended.add_done_callback(lambda _: self._forget(process))
        return process

    def _park(self, process: ChildProcess) -> None:
        loop = asyncio.get_running_loop()
        self._free[process] = loop.call_later(self._idle_timeout, self._retire, process)

    def _retire(self, process: ChildProcess) -> None:
        if len(self._free) > self._spares:
            del self._free[process]
            self._spawn(self._end(process))

    def _forget(self, process: ChildProcess) -> None:
        self._all.discard(process)
        timer = self._free.pop(process, None)
        if timer is not None:  # it ended while idle
            timer.cancel()
            process.close()

    async def _end(self, process: ChildProcess) -> None:
        await process.stop(self.grace)
        process.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def aclose(self) -> None:
        """End all children, also those in use, and then the warden."""
        self._closed = True
        for timer in self._free.values():
            timer.cancel()
        free = list(self._free)
        self._free.clear()
        in_use = [process for process in self._all if process not in free]
        stopping = [
            *(self._end(process) for process in free),
            *(process.stop(self.grace) for process in in_use),  # `take` closes them
        ]
        await run_uncancelled(_wait_all(stopping, self._ending))
        self.groups.close()


async def _wait_all(
    stopping: list[Coroutine[Any, Any, None]], ending: set[asyncio.Task[None]]
) -> None:
    await asyncio.gather(*stopping, *ending)
