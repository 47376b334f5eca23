"""Publishes this worker's presence record in the store.

Waits for: its interval. Guarantees: the record holds the worker's queues, tasks and load. While the
store is available, the record is never older than an interval. A store outage costs one warning and
does not end the loop. Stops: when cancelled, and deletes the record. After a crash, the record
expires after three intervals.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable
from dataclasses import replace

from windlass.core.clock import SECOND, Instant
from windlass.core.errors import StoreError, WindlassError
from windlass.core.version import version
from windlass.core.versioned_record import Put
from windlass.core.worker_presence import WORKER, LiveWorker
from windlass.store import Store
from windlass.task_spec import Registry
from windlass.worker.config import WorkerConfig

log = logging.getLogger("windlass.worker")
DELETE_TIMEOUT = 2.0  # seconds to delete the record at the end; it would expire anyway


class Presence:
    """`running` counts attempts, `free` counts slots, `last_claim` is a loop time.

    The time since which slots are free is sampled: the true time may be earlier, never later.
    """

    def __init__(
        self,
        store: Store,
        tasks: Registry,
        config: WorkerConfig,
        *,
        running: Callable[[], int],
        last_claim: Callable[[], float | None],
        free: Callable[[], int] = lambda: 0,
        stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._store = store
        self._tasks = tasks
        self._config = config
        self._running = running
        self._last_claim = last_claim
        self._free = free
        self._stopping = stopping
        self._free_since: Instant | None = None
        self._started_at: Instant | None = None
        self._version = version()

    async def run(self) -> None:
        warned = False
        try:
            while True:
                try:
                    await self.publish()
                    warned = False
                except WindlassError as error:
                    if not warned:
                        log.warning("Updating worker presence failed: %s", error)
                    warned = True
                await asyncio.sleep(self._config.presence_interval)
        finally:
            with contextlib.suppress(StoreError, TimeoutError):
                async with asyncio.timeout(DELETE_TIMEOUT):
                    await self._store.delete_records(WORKER, [self._config.name])

    async def publish(self) -> LiveWorker:
        """Write the record and return it."""
        record = await self.snapshot()
        ttl = 3 * self._config.presence_interval
        put = Put(kind=WORKER, key=record.name, value=record.encode(), ttl=ttl)
        await self._store.put_records([put])
        return record

    async def snapshot(self) -> LiveWorker:
        """Return the worker's current state, by the store's clock."""
        now = await self._store.ping()
        if self._started_at is None:
            self._started_at = now
        claimed, free = self._last_claim(), self._free()
        self._free_since = (self._free_since or now) if free else None
        return replace(
            self._base_record(now, self._started_at),
            running=self._running(),
            last_claim_at=None
            if claimed is None
            else now - round((asyncio.get_running_loop().time() - claimed) * SECOND),
            free=free,
            free_since=self._free_since,
            poll_interval=self._config.poll_interval,
            stopping=self._stopping(),
        )

    def _base_record(self, now: Instant, started_at: Instant) -> LiveWorker:
        return LiveWorker(
            name=self._config.name,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=self._version,
            queues=dict(self._config.queues),
            tasks=tuple(sorted(name for spec in self._tasks for name in spec.names)),
            started_at=started_at,
            seen_at=now,
        )
