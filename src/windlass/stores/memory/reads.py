"""Read methods of the memory store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from uuid import UUID

from windlass.core.clock import Instant
from windlass.core.decisions.transition import Checkpoint
from windlass.core.event import Event
from windlass.core.job import event_log
from windlass.core.job.dependency import Edges
from windlass.core.job.row import JobRow
from windlass.core.query import job_query
from windlass.core.query.job_query import JobQuery, Page
from windlass.core.versioned_record import Entry, unexpired
from windlass.store import (
    EventPage,
    Store,
)
from windlass.stores.event_tail import tail
from windlass.stores.memory.data import MemoryData


class MemoryReads(Store):
    """Store methods that read jobs and their logs."""

    _data: MemoryData

    def _now(self) -> Instant:
        return self._data.clock.now()

    def _unexpired(self, kind: str, key: str) -> Entry | None:
        return unexpired(self._data.entries.get((kind, key)), self._now())

    # -- reading

    def _visible(self, job_id: UUID, owner: str | None) -> JobRow | None:
        row = self._data.jobs.get(job_id)
        return row if row is not None and owner in {None, row.owner} else None

    async def get(self, ids: Sequence[UUID], owner: str | None = None) -> list[JobRow | None]:
        with self._data.lock:
            return [self._visible(job_id, owner) for job_id in ids]

    async def find(self, query: JobQuery) -> Page:
        before = job_query.decode_cursor(query)
        found: list[JobRow] = []
        with self._data.lock:
            for row in reversed(self._data.jobs.values()):  # stored in the order of their serials
                if (before is None or row.serial < before) and job_query.matches(query, row):
                    found.append(row)
                    if len(found) > query.limit:
                        break
        page = [job_query.without_payload(query, row) for row in found[: query.limit]]
        more = len(found) > query.limit
        return Page(page, job_query.encode_cursor(query, page[-1].serial) if more else None)

    async def events(self, job_id: UUID, after: int = 0, limit: int = 1000) -> EventPage | None:
        with self._data.lock:
            row = self._data.jobs.get(job_id)
            log = list(self._data.logs.get(job_id, ()))
        if row is None:
            return None
        after = max(after, 0)
        events = event_log.page(row, log, after, limit)
        last = events[-1].seq if events else after
        return EventPage(events, row.final and last >= row.seq)

    def tail(self, job_id: UUID, after: int = 0) -> AsyncIterator[Event]:
        return tail(self, self._data.job_wakeups, job_id, after)

    async def checkpoints(self, ids: Sequence[UUID]) -> list[Mapping[str, Checkpoint]]:
        with self._data.lock:
            return [dict(self._data.steps.get(job_id, {})) for job_id in ids]

    async def edges(self, ids: Sequence[UUID], limit: int | None = None) -> list[Edges]:
        with self._data.lock:
            return [
                Edges(
                    tuple(self._data.edges.get(job_id, ()))[:limit],
                    tuple(sorted(self._data.dependents.get(job_id, ()), key=self._arrival))[:limit],
                )
                for job_id in ids
            ]

    def _arrival(self, job_id: UUID) -> int:
        return self._data.jobs[job_id].serial
