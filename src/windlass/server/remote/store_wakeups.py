"""Wakeups for remote workers: one store handle waits for all long polls over HTTP.

A store's own `wait` depends on the last claim of its handle, and all requests share one handle. So
the server counts wakeups. A claim returns the count before it, and a later `wait` continues from
this cursor on any connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import Callable

from windlass.core.errors import StoreError
from windlass.core.ids import uuid7
from windlass.core.job.lease import Claim
from windlass.store import Store
from windlass.stores.wakeup import Wakeup

WAIT_TIMEOUT = 20.0  # seconds of one wait
ERROR_PAUSE = 1.0  # seconds after a store error
UNKNOWN_CURSOR_WAIT = 1.0  # seconds that a wait with an unknown cursor takes at most


class StoreWakeups:
    """Counts the wakeups of a store, from the first claim on.

    Waits for: wakeups of the store. Guarantees: a wakeup after a cursor was issued ends every wait
    from this cursor. A cursor of another process, or from before a store error, may have missed
    wakeups: its wait returns True after at most a second. So workers behind a load balancer claim
    at most once a second. Stops: when closed, or with its event loop. After a crash, workers retry.
    """

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store
        self._wakeup = Wakeup()
        self._epoch = ""
        self._source: Store | None = None
        self._task: asyncio.Task[None] | None = None

    async def cursor(self) -> str:
        """Return the current cursor."""
        await self._start()
        return f"{self._epoch}.{self._wakeup.count}"

    async def wait(self, cursor: str, timeout: float) -> bool:
        """Wait for a wakeup after the cursor; return False at the timeout."""
        await self._start()
        epoch, _, count = cursor.partition(".")
        if epoch != self._epoch or not (count.isascii() and count.isdigit()):
            await self._wakeup.wait(self._wakeup.count, min(timeout, UNKNOWN_CURSOR_WAIT))
            return True
        return await self._wakeup.wait(int(count), timeout)

    async def close(self) -> None:
        task, self._task, self._source = self._task, None, None
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait({task})

    async def _start(self) -> None:
        source = self._store()
        if source is self._source and self._task is not None and not self._task.done():
            return
        old, self._source = self._task, source
        handle = source.twin()
        self._epoch, self._wakeup = secrets.token_hex(6), Wakeup()
        self._task = asyncio.create_task(self._run(handle, self._wakeup))
        if old is not None:
            old.cancel()
        await _arm(handle)

    async def _run(self, handle: Store, wakeup: Wakeup) -> None:
        try:
            while True:
                try:
                    if await handle.wait((), WAIT_TIMEOUT):
                        await _arm(handle)  # before the notification: no wakeup is lost in between
                        wakeup.notify()
                except StoreError:
                    wakeup.notify()
                    await asyncio.sleep(ERROR_PAUSE)
        finally:
            with contextlib.suppress(StoreError):
                await handle.close()


async def _arm(handle: Store) -> None:
    """Make the next `wait` report changes from now on, by a claim of no queues."""
    await handle.claim(Claim(token=uuid7(), worker="server", queues=()))
