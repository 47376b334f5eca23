"""Hints that cross threads: something changed. Never lost between a look and the wait for it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import Lock
from uuid import UUID


class Signal:
    """Counts news. Whoever noted the count before looking cannot miss what came since."""

    def __init__(self) -> None:
        self.count = 0
        self._lock = Lock()
        self._waiters: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}  # first come, first told

    def notify(self) -> None:
        """From any thread; never raises."""
        with self._lock:
            self.count += 1
            if not self._waiters:
                return
            waiters, self._waiters = self._waiters, {}
        for event, loop in waiters.items():
            with contextlib.suppress(RuntimeError):  # a loop that is closed waits for nothing
                loop.call_soon_threadsafe(event.set)

    async def wait(self, since: int, timeout: float) -> bool:
        """Whether there was news after `since`; returns at once if there already is."""
        event = asyncio.Event()
        with self._lock:
            if self.count != since:
                return True
            self._waiters[event] = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout):
                await event.wait()
        except TimeoutError:
            return False
        finally:
            with self._lock:
                self._waiters.pop(event, None)
        return True


class Bulletin:
    """News by job: those who follow one job are not woken by all the others."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._followed: dict[UUID, tuple[Signal, int]] = {}

    @property
    def followed(self) -> bool:
        return bool(self._followed)

    def tell(self, jobs: Iterable[UUID]) -> None:
        with self._lock:
            signals = [self._followed[job][0] for job in jobs if job in self._followed]
        for signal in signals:
            signal.notify()

    def tell_all(self) -> None:
        """Somebody else wrote, and nobody knows about which job."""
        with self._lock:
            signals = [signal for signal, _ in self._followed.values()]
        for signal in signals:
            signal.notify()

    @contextmanager
    def follow(self, job: UUID) -> Iterator[Signal]:
        with self._lock:
            signal, users = self._followed.get(job, (Signal(), 0))
            self._followed[job] = (signal, users + 1)
        try:
            yield signal
        finally:
            with self._lock:
                signal, users = self._followed[job]
                if users == 1:
                    del self._followed[job]
                else:
                    self._followed[job] = (signal, users - 1)
