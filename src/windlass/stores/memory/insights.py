"""Insights of the memory store: queues, flows, gates, rollups; other methods compute the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from uuid import UUID

from windlass.core.admission.gates import GateStats
from windlass.core.clock import Instant
from windlass.core.job.flow_stats import FlowStats
from windlass.core.job.row import JobRow
from windlass.core.versioned_record import PAUSED
from windlass.store import COUNT_CAP, QueueStats, Rollup, Store
from windlass.stores.computed_insights import ComputedInsights, QueueCounter, flow_stats
from windlass.stores.memory import gates
from windlass.stores.memory.data import MemoryData


class MemoryInsights(ComputedInsights):
    def __init__(self, store: Store, data: MemoryData) -> None:
        super().__init__(store)
        self._data = data

    async def stats(self) -> Mapping[str, QueueStats]:
        """Count in one pass: `drain` reads the depth of queues after each change.

        Computed from pages of jobs, a drain of 2,000 jobs took 18 s instead of 0.4 s (2026-11).
        """
        counter = QueueCounter()
        with self._data.lock:
            for row in self._data.jobs.values():
                if not row.final:
                    counter.add(row)
        return counter.stats(
            [entry.key for entry in await self._store.list_records(PAUSED, limit=COUNT_CAP)]
        )

    async def flows(
        self, ids: Sequence[UUID], owner: str | None = None, team: str | None = None
    ) -> list[FlowStats | None]:
        """Read all flows in one pass: a query per flow reads all jobs each time."""
        rows: dict[UUID, list[JobRow]] = {flow_id: [] for flow_id in ids}
        with self._data.lock:
            for row in self._data.jobs.values():
                if row.flow_id in rows and owner in {None, row.owner} and team in {None, row.team}:
                    rows[row.flow_id].append(row)
        return [flow_stats(flow_id, rows[flow_id]) for flow_id in ids]

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
