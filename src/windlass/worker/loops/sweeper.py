"""Moves time along: promotes what is due, rescues lost leases, prunes what is past keeping.

Waits for: its interval. Guarantees: any number of sweepers may run at once, because each write
touches only what it saw. Stops: when cancelled, between two calls. A crash leaves nothing undone
that the next sweep, here or elsewhere, does not do.
"""

from __future__ import annotations

import asyncio
import logging
import random

from windlass.core.decisions.outcome import sweep
from windlass.core.errors import StoreError
from windlass.core.job.state import State
from windlass.store import Retention, Store
from windlass.worker.loops.cleaner import Cleaner
from windlass.worker.loops.outage_log import Trouble

log = logging.getLogger("windlass.worker")
BATCH = 500
PRUNE_EVERY = 60  # sweeps


class Sweeper:
    def __init__(
        self, store: Store, interval: float, retention: Retention, cleaner: Cleaner | None = None
    ) -> None:
        self._cleaner = cleaner or Cleaner(store, None)
        self._store = store
        self._interval = interval
        self._retention = retention

    async def run(self) -> None:
        count = 0
        trouble = Trouble("sweeping")
        while True:
            try:
                await self.once()
                if count % PRUNE_EVERY == 0:
                    await self._prune()
                trouble.over()
            except StoreError as error:
                trouble.met(error)
            except Exception:
                log.exception("sweeping failed, trying again")  # rescue must never stop for good
            count += 1
            await asyncio.sleep(self._interval)

    async def _prune(self) -> None:
        while True:
            gone = await self._store.prune(self._retention, BATCH)
            if max(gone.jobs, gone.logs) < BATCH:
                return

    async def once(self) -> int:
        """One sweep; answers how many jobs it moved."""
        moved = 0
        for read in (self._store.due, self._store.expired):
            while True:
                rows = await read(BATCH)
                if not rows:
                    break
                wishes = [sweep(row, random=random.random) for row in rows]
                answers = await self._store.apply(wishes)
                applied = sum(answer.applied for answer in answers)
                moved += applied
                for row, answer in zip(rows, answers, strict=True):
                    if answer.applied and answer.state is State.CANCELED:
                        self._cleaner.later(row)
                if len(rows) < BATCH or not applied:
                    break
        return moved
