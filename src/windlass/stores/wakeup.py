"""Thread-safe wakeups: a change between a read and the following wait is never missed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import Lock
from uuid import UUID


class Wakeup:
    """Counter of notifications.

    A reader notes the count before it reads the store. `wait` then reports every later change.
    """

    def __init__(self) -> None:
        self.count = 0
        self._lock = Lock()
        self._waiters: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}  # woken in FIFO order

    def notify(self) -> None:
        """Wake all waiters. Safe to call from any thread; never raises."""
        with self._lock:
            self.count += 1
            if not self._waiters:
                return
            waiters, self._waiters = self._waiters, {}
        for event, loop in waiters.items():
            with contextlib.suppress(RuntimeError):  # a closed loop has no waiters left
                loop.call_soon_threadsafe(event.set)

    async def wait(self, since: int, timeout: float) -> bool:
        """Wait for a notification after `since`; return False at the timeout.

        Returns immediately if the count has already moved past `since`.
        """
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


class JobWakeups:
    """Wakeups per job, so that a change of one job wakes only the readers of that job."""

    def __init__(self) -> None:
        self._lock = Lock()
        self.subscribed: dict[UUID, tuple[Wakeup, int]] = {}  # with the number of readers

    def notify(self, jobs: Iterable[UUID]) -> None:
        with self._lock:
            wakeups = [self.subscribed[job][0] for job in jobs if job in self.subscribed]
        for wakeup in wakeups:
            wakeup.notify()

    def notify_all(self) -> None:
        """Wake all subscribers: another process wrote, and its jobs are not known here."""
        with self._lock:
            wakeups = [wakeup for wakeup, _ in self.subscribed.values()]
        for wakeup in wakeups:
            wakeup.notify()

    @contextmanager
    def subscribe(self, job: UUID) -> Iterator[Wakeup]:
        with self._lock:
            wakeup, users = self.subscribed.get(job, (Wakeup(), 0))
            self.subscribed[job] = (wakeup, users + 1)
        try:
            yield wakeup
        finally:
            with self._lock:
                wakeup, users = self.subscribed[job]
                if users == 1:
                    del self.subscribed[job]
                else:
                    self.subscribed[job] = (wakeup, users - 1)
