"""Insights of the memory store: gates and rollups; its other methods compute the rest."""

from __future__ import annotations

from collections.abc import Sequence

from windlass.core.admission.gates import GateStats
from windlass.core.clock import Instant
from windlass.store import Rollup, Store
from windlass.stores.computed_insights import ComputedInsights
from windlass.stores.memory import gates
from windlass.stores.memory.data import MemoryData


class MemoryInsights(ComputedInsights):
    def __init__(self, store: Store, data: MemoryData) -> None:
        super().__init__(store)
        self._data = data

    async def gates(self, names: Sequence[str]) -> list[GateStats]:
        with self._data.lock:
            return [gates.stats(self._data, name) for name in names]

    async def rollups(self, since: Instant, until: Instant) -> list[Rollup]:
        with self._data.lock:
            return [
                Rollup(minute=minute, queue=queue, task=task, outcome=outcome,
                       count=count, wait=wait, run=run)
                for (minute, queue, task, outcome), (count, wait, run)
                in sorted(self._data.rollups.items())
                if since <= minute < until
            ]  # fmt: skip
