"""Shows this worker to others: one record in the store, kept fresh while it lives.

Waits for: its interval. Guarantees: the record says what the worker takes and how it does, and is
never older than an interval while the store answers; a store that is away costs one warning, not
the loop. Stops: when cancelled, taking the record along. A crash leaves a record that runs out by
itself after three intervals.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.metadata
import logging
import os
import socket
from collections.abc import Callable
from dataclasses import replace

from windlass.core.clock import SECOND, Instant
from windlass.core.errors import StoreError, WindlassError
from windlass.core.records import Put
from windlass.core.worker_presence import WORKER, LiveWorker
from windlass.store import Store
from windlass.task_spec import Registry
from windlass.worker.config import WorkerConfig

log = logging.getLogger("windlass.worker")
FAREWELL = 2.0  # seconds for taking the record away; it would run out anyway


class Registrar:
    """`running` counts attempts, `free` slots; `last_claim` is the loop's time of the last answer.

    Since when there is room is known by looking: it may be for longer, and never is for less.
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
        self._room_since: Instant | None = None
        self._started_at: Instant | None = None
        self._version = _version()

    async def run(self) -> None:
        warned = False
        try:
            while True:
                try:
                    await self.once()
                    warned = False
                except WindlassError as error:
                    if not warned:
                        log.warning("this worker cannot be shown to others for now: %s", error)
                    warned = True
                await asyncio.sleep(self._config.heartbeat)
        finally:
            with contextlib.suppress(StoreError, TimeoutError):
                async with asyncio.timeout(FAREWELL):
                    await self._store.delete_records(WORKER, [self._config.name])

    async def once(self) -> LiveWorker:
        """Write the record; answers what it says."""
        card = await self.look()
        ttl = 3 * self._config.heartbeat
        put = Put(kind=WORKER, key=card.name, value=card.encode(), ttl=ttl)
        await self._store.put_records([put])
        return card

    async def look(self) -> LiveWorker:
        """How it does now, by the store's clock."""
        now = await self._store.ping()
        if self._started_at is None:
            self._started_at = now
        claimed, free = self._last_claim(), self._free()
        self._room_since = (self._room_since or now) if free else None
        return replace(
            self._card(now, self._started_at),
            running=self._running(),
            last_claim_at=None
            if claimed is None
            else now - round((asyncio.get_running_loop().time() - claimed) * SECOND),
            free=free,
            room_since=self._room_since,
            poll=self._config.poll,
            stopping=self._stopping(),
        )

    def _card(self, now: Instant, started_at: Instant) -> LiveWorker:
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


def _version() -> str:
    try:
        return importlib.metadata.version("windlass")
    except importlib.metadata.PackageNotFoundError:
        return "not installed"  # run from a source tree
