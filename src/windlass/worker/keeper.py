"""Keeps the leases of running attempts alive, apart from the tasks.

Waits for: a third of the lease length. Guarantees: a blocked event loop or a busy task loses no
lease, because this runs on a thread with its own loop and store handle; a lost lease or an accepted
cancel reaches the worker at the next extension. Stops: when told, after its current call. A crash
leaves leases to run out, and rescue takes the jobs back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from threading import Event as Flag
from threading import Lock, Thread
from uuid import UUID

from windlass.core.errors import StoreError
from windlass.core.lease import Lease
from windlass.store import Store

log = logging.getLogger("windlass.worker")


class Keeper:
    """`on_lost` and `on_cancel` are called on the keeper's thread with the job's id."""

    def __init__(
        self,
        store: Store,
        lease: float,
        *,
        on_lost: Callable[[UUID], object],
        on_cancel: Callable[[UUID], object],
    ) -> None:
        self._store = store
        self._lease = lease
        self._on_lost = on_lost
        self._on_cancel = on_cancel
        self._lock = Lock()
        self._leases: dict[UUID, Lease] = {}
        self._stop = Flag()
        self._thread = Thread(target=self._run, name="windlass-keeper", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def hold(self, lease: Lease) -> None:
        with self._lock:
            self._leases[lease.job_id] = lease

    def let_go(self, lease: Lease) -> None:
        with self._lock:
            if self._leases.get(lease.job_id) == lease:
                del self._leases[lease.job_id]

    def _run(self) -> None:
        asyncio.run(self._keep())

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while not await loop.run_in_executor(None, self._stop.wait, self._lease / 3):
                await self._extend()
        finally:
            await self._store.close()

    async def _extend(self) -> None:
        with self._lock:
            leases = list(self._leases.values())
        try:
            answers = await self._store.extend(leases, self._lease)
        except StoreError as error:
            log.warning("could not extend %d leases, trying again: %s", len(leases), error)
            return
        for lease, answer in zip(leases, answers, strict=True):
            if answer.stale:
                self.let_go(lease)
                self._on_lost(lease.job_id)
            elif answer.cancel_requested:
                self._on_cancel(lease.job_id)
