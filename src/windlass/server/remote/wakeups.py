"""News of work, for workers elsewhere: one handle listens for all who wait over HTTP.

A store's own `wait` goes by the last claim of its handle, and all requests share one handle. So it
is counted here how often there was news; whoever claims is told the count before, and waits from
there, on whatever connection they come back.
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
from windlass.stores.wakeup import Signal

PATIENCE = 20.0  # seconds of one wait
PAUSE = 1.0  # seconds after a store that failed
STRANGE = 1.0  # seconds before who comes from another server is told to look for themselves


class News:
    """Listens from the first claim on.

    Waits for: news of the store. Guarantees: what comes after a cursor was given wakes whoever
    waits from it. What this process did not count (before it began, or while its store was away)
    may be news: whoever waits is told to look, not more than once a second, so that workers behind
    a load balancer do not go round in circles. Stops: when closed, or with its event loop. A crash
    leaves workers to ask again.
    """

    def __init__(self, store: Callable[[], Store]) -> None:
        self._store = store
        self._heard = Signal()
        self._name = ""
        self._source: Store | None = None
        self._task: asyncio.Task[None] | None = None

    async def cursor(self) -> str:
        """Where the news stands now."""
        await self._listen()
        return f"{self._name}.{self._heard.count}"

    async def wait(self, cursor: str, timeout: float) -> bool:
        """Whether there was news since then; at once if there is, else within the time."""
        await self._listen()
        name, _, count = cursor.partition(".")
        if name != self._name or not (count.isascii() and count.isdigit()):
            await self._heard.wait(self._heard.count, min(timeout, STRANGE))
            return True
        return await self._heard.wait(int(count), timeout)

    async def close(self) -> None:
        task, self._task, self._source = self._task, None, None
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait({task})

    async def _listen(self) -> None:
        source = self._store()
        if source is self._source and self._task is not None and not self._task.done():
            return
        old, self._source = self._task, source
        ear = source.twin()
        self._name, self._heard = secrets.token_hex(6), Signal()
        self._task = asyncio.create_task(self._run(ear, self._heard))
        if old is not None:
            old.cancel()
        await _hark(ear)

    async def _run(self, ear: Store, heard: Signal) -> None:
        try:
            while True:
                try:
                    if await ear.wait((), PATIENCE):
                        await _hark(ear)  # first: what comes between the two is not lost
                        heard.notify()
                except StoreError:
                    heard.notify()
                    await asyncio.sleep(PAUSE)
        finally:
            with contextlib.suppress(StoreError):
                await ear.close()


async def _hark(ear: Store) -> None:
    """From here on, what comes is news. A claim of nothing asks the store for nothing."""
    await ear.claim(Claim(token=uuid7(), worker="server", queues=()))
