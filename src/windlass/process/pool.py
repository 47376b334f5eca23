"""Warm children, each for one job at a time.

A child that was given back is used again, the latest first. What ended, was stopped or failed its
holder is not. Beyond a few spare ones, a child that nobody wanted for a while is ended.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from typing import Any

from windlass.process.groups import Groups
from windlass.process.spawn import Process

GRACE = 5.0


class Pool:
    """At most `limit` children work; whoever comes then waits. `idle` and `grace` are seconds."""

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
        self._places = asyncio.Semaphore(limit)
        self._spare = spare
        self._idle = idle
        self.grace = grace
        self.groups = Groups()
        self._all: set[Process] = set()
        self._free: dict[Process, asyncio.TimerHandle] = {}  # the latest is the last
        self._ending: set[asyncio.Task[None]] = set()
        self._closed = False

    @property
    def pids(self) -> list[int]:
        """Of all children that live."""
        return [process.pid for process in self._all]

    @contextlib.asynccontextmanager
    async def take(self) -> AsyncIterator[Process]:
        """A child for the block alone. If the block raises, the child is ended before this does."""
        async with self._places:
            process = self._take()
            try:
                yield process
            except BaseException:
                await through(self._end(process))
                raise
            if process.ended.done() or self._closed:
                await through(self._end(process))
            else:
                self._park(process)

    def _take(self) -> Process:
        if self._closed:
            raise RuntimeError("this pool of processes is closed")
        while self._free:
            process, timer = self._free.popitem()
            timer.cancel()
            if not process.ended.done():
                return process
            process.close()
        process = Process(self._module, self.groups)
        self._all.add(process)
        process.ended.add_done_callback(lambda _: self._forget(process))
        return process

    def _park(self, process: Process) -> None:
        loop = asyncio.get_running_loop()
        self._free[process] = loop.call_later(self._idle, self._retire, process)

    def _retire(self, process: Process) -> None:
        if len(self._free) > self._spare:
            del self._free[process]
            self._spawn(self._end(process))

    def _forget(self, process: Process) -> None:
        self._all.discard(process)
        timer = self._free.pop(process, None)
        if timer is not None:  # it ended while nobody used it
            timer.cancel()
            process.close()

    async def _end(self, process: Process) -> None:
        await process.stop(self.grace)
        process.close()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def aclose(self) -> None:
        """End all children, those at work too, and then the warden."""
        self._closed = True
        for timer in self._free.values():
            timer.cancel()
        free = list(self._free)
        self._free.clear()
        working = [process for process in self._all if process not in free]
        stopping = [
            *(self._end(process) for process in free),
            *(process.stop(self.grace) for process in working),  # their holders close them
        ]
        await through(_all(stopping, self._ending))
        self.groups.close()


async def _all(stopping: list[Coroutine[Any, Any, None]], ending: set[asyncio.Task[None]]) -> None:
    await asyncio.gather(*stopping, *ending)


async def through(work: Coroutine[Any, Any, None]) -> None:
    """Do it to its end. If this is cancelled meanwhile, it is cancelled then."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    task.result()
    if cancelled is not None:
        raise cancelled
