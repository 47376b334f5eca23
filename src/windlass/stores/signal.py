"""A hint that crosses threads: something changed. Never lost between a look and the wait for it."""

from __future__ import annotations

import asyncio
from threading import Lock


class Signal:
    """Counts news. Whoever noted the count before looking cannot miss what came since."""

    def __init__(self) -> None:
        self.count = 0
        self._lock = Lock()
        self._waiters: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()

    def notify(self) -> None:
        """From any thread."""
        with self._lock:
            self.count += 1
            if not self._waiters:
                return
            waiters, self._waiters = self._waiters, set()
        for loop, event in waiters:
            if not loop.is_closed():
                loop.call_soon_threadsafe(event.set)

    async def wait(self, since: int, timeout: float) -> bool:
        """Whether there was news after `since`; returns at once if there already is."""
        event = asyncio.Event()
        waiter = (asyncio.get_running_loop(), event)
        with self._lock:
            if self.count != since:
                return True
            self._waiters.add(waiter)
        try:
            async with asyncio.timeout(timeout):
                await event.wait()
        except TimeoutError:
            return False
        finally:
            with self._lock:
                self._waiters.discard(waiter)
        return True
