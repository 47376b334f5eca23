"""Delivers cancel requests to running attempts faster than the next lease extension.

Waits for: attempts, then for its interval. Guarantees: one read for all attempts, at most one per
interval. Attempts shorter than the interval are not read, so quick jobs cost nothing. Stops: when
cancelled. After a crash or while the store is down, the keeper delivers cancels.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable

from windlass.core.errors import StoreError
from windlass.core.job.lease import Lease
from windlass.store import Store


class CancelWatcher:
    """`busy` is set while `running` returns leases."""

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
        previous: set[Lease] = set()
        while True:
            await self._busy.wait()
            await asyncio.sleep(self._interval)
            current = set(self._running())
            if leases := list(previous & current):
                with contextlib.suppress(StoreError):
                    await self._check(leases)
            previous = current

    async def _check(self, leases: list[Lease]) -> None:
        """Report cancel requests. The keeper detects lost leases."""
        rows = await self._store.get([lease.job_id for lease in leases])
        for lease, row in zip(leases, rows, strict=True):
            if row is not None and row.cancel_requested and row.fence == lease.fence:
                self._on_cancel(lease)
