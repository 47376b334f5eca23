"""Maintains jobs that no worker holds: promotes due jobs, rescues expired leases, prunes old jobs.

Waits for: its interval. Guarantees: any number of sweepers may run concurrently, because each write
applies only to the state it read. Stops: when cancelled, between two calls. After a crash, the next
sweep of any worker does the rest.
"""

from __future__ import annotations

import asyncio
import logging
import random

from windlass.core.decisions.maintenance import sweep
from windlass.core.errors import StoreError
from windlass.core.job.state import State
from windlass.store import Retention, Store
from windlass.worker.loops.outage_log import OutageLog
from windlass.worker.loops.workspace_cleaner import WorkspaceCleaner

log = logging.getLogger("windlass.worker")
BATCH = 500
PRUNE_EVERY = 60  # sweeps


class Sweeper:
    def __init__(
        self,
        store: Store,
        interval: float,
        retention: Retention,
        cleaner: WorkspaceCleaner | None = None,
    ) -> None:
        self._cleaner = cleaner or WorkspaceCleaner(store, None)
        self._store = store
        self._interval = interval
        self._retention = retention

    async def run(self) -> None:
        count = 0
        outages = OutageLog("Sweeping")
        while True:
            try:
                await self.once()
                if count % PRUNE_EVERY == 0:
                    await self._prune()
                outages.succeeded()
            except StoreError as error:
                outages.failed(error)
            except Exception:
                log.exception("Sweeping failed; retrying")  # rescue must never stop for good
            count += 1
            await asyncio.sleep(self._interval)

    async def _prune(self) -> None:
        while True:
            pruned = await self._store.prune(self._retention, BATCH)
            if max(pruned.jobs, pruned.logs) < BATCH:
                return

    async def once(self) -> int:
        """Sweep once; return how many jobs changed state."""
        moved = 0
        while True:
            rows = await self._store.due(BATCH)
            if not rows:
                return moved
            results = await self._store.apply([sweep(row, random=random.random) for row in rows])
            applied = sum(result.applied for result in results)
            moved += applied
            for row, result in zip(rows, results, strict=True):
                if result.applied and result.state is State.CANCELED:
                    self._cleaner.enqueue(row)
            if len(rows) < BATCH or not applied:
                return moved
