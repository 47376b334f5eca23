"""MemoryStore: a handle on jobs in memory. The parent classes implement most methods."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.core.clock import Clock, Instant, SystemClock
from windlass.store import Capabilities
from windlass.stores.memory.data import MemoryData
from windlass.stores.memory.insights import MemoryInsights
from windlass.stores.memory.writes import MemoryWrites


class MemoryStore(MemoryWrites):
    def __init__(self, *, clock: Clock | None = None, _data: MemoryData | None = None) -> None:
        self._data = _data or MemoryData(clock or SystemClock())
        self._seen = 0

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(
            durable=False,
            fifo=True,
            priority_classes=None,
            atomic_batch=True,
            transactional=False,
            store_clock=True,
            push_wakeups=True,
            shared=False,
        )

    @property
    def insights(self) -> MemoryInsights:
        return MemoryInsights(self, self._data)

    async def migrate(self) -> Sequence[str]:
        return []

    async def ping(self) -> Instant:
        return self._now()

    def twin(self) -> MemoryStore:
        return MemoryStore(_data=self._data)

    async def close(self) -> None:
        pass
