"""Brings a cancel to a running attempt at once, not only with its next extension.

Waits for: attempts, and while there are any, for its interval. Guarantees: one read for all
attempts together, at most one per interval, and none for attempts shorter than that, so that quick
jobs cost nothing. Stops: when cancelled. A crash, or a store that is away, leaves cancels to the
keeper.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable

from windlass.core.errors import StoreError
from windlass.core.job.lease import Lease
from windlass.store import Store


class Follower:
    """`busy` is set while there are leases in `running`."""

    def __init__(
        self,
        store: Store,
        interval: float,
        *,
        running: Callable[[], Iterable[Lease]],
        on_cancel: Callable[[Lease], object],
        busy: asyncio.Event,
    ) -> None:
        self._busy = busy
        self._store = store
        self._interval = interval
        self._running = running
        self._on_cancel = on_cancel

    async def run(self) -> None:
        before: set[Lease] = set()
        while True:
            await self._busy.wait()
            await asyncio.sleep(self._interval)
            now = set(self._running())
            if asked := list(before & now):
                with contextlib.suppress(StoreError):
                    await self._look(asked)
            before = now

    async def _look(self, asked: list[Lease]) -> None:
        """Tell of those whose cancel was asked for; a lease that is lost is the keeper's to see."""
        rows = await self._store.get([lease.job_id for lease in asked])
        for lease, row in zip(asked, rows, strict=True):
            if row is not None and row.cancel_requested and row.fence == lease.fence:
                self._on_cancel(lease)
