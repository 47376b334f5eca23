"""Read methods of the memory store."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from windlass.core.admission.gates import GateStats
from windlass.core.clock import Instant
from windlass.core.decisions.transition import Checkpoint
from windlass.core.event import Event
from windlass.core.job import event_log
from windlass.core.job.attempt import Attempt, attempts_of
from windlass.core.job.dependency import Edges
from windlass.core.job.failure import FailedJob, Failures
from windlass.core.job.flow_stats import FlowPage, FlowStats
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.core.query import job_query
from windlass.core.query.job_query import Count, JobQuery, Page
from windlass.core.versioned_record import PAUSED, Entry, unexpired
from windlass.store import (
    COUNT_CAP,
    FLOW_RANGE,
    EventPage,
    QueueStats,
    Rollup,
    Store,
)
from windlass.stores.event_tail import tail
from windlass.stores.memory import gates
from windlass.stores.memory.data import MemoryData


def flow_stats(flow_id: UUID, rows: Sequence[JobRow]) -> FlowStats | None:
    parts = [(row.state, 1, row.percent, row.created_at, row.ended_at) for row in rows]
    return FlowStats.of(flow_id, parts) if parts else None


def _counts_in_flow(row: JobRow, owner: str | None, team: str | None) -> bool:
    """Return whether the flow counts this job, for callers limited to an owner and a team."""
    return row.retried_as is None and owner in {None, row.owner} and team in {None, row.team}


class MemoryReads(Store):
    """Store methods that read jobs, logs, counts and flows."""

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
        with self._data.lock:
            rows = [
                row
                for row in self._data.jobs.values()
                if (before is None or row.serial < before) and job_query.matches(query, row)
            ]
        rows.sort(key=lambda row: -row.serial)
        page = [job_query.without_payload(query, row) for row in rows[: query.limit]]
        more = len(rows) > query.limit
        return Page(page, job_query.encode_cursor(query, page[-1].serial) if more else None)

    async def count(self, query: JobQuery) -> Count:
        with self._data.lock:
            total = sum(job_query.matches(query, row) for row in self._data.jobs.values())
        return Count(min(total, COUNT_CAP), capped=total > COUNT_CAP)

    async def stats(self) -> Mapping[str, QueueStats]:
        counts: dict[str, dict[State, int]] = defaultdict(lambda: defaultdict(int))
        oldest: dict[str, Instant] = {}
        with self._data.lock:
            paused = {
                key
                for kind, key in self._data.entries
                if kind == PAUSED and self._unexpired(kind, key)
            }
            for row in self._data.jobs.values():
                if not row.final:
                    counts[row.queue][row.state] += 1
                if row.state is State.QUEUED and row.queued_at is not None:
                    oldest[row.queue] = min(row.queued_at, oldest.get(row.queue, row.queued_at))
        return {
            queue: QueueStats(
                counts={s: min(n, COUNT_CAP) for s, n in counts[queue].items()},
                capped=frozenset(s for s, n in counts[queue].items() if n > COUNT_CAP),
                oldest_queued_at=oldest.get(queue),
                paused=queue in paused,
            )
            for queue in sorted({*counts, *paused})
        }

    async def failures(
        self, since: Instant, limit: int, owner: str | None = None, team: str | None = None
    ) -> Failures:
        with self._data.lock:
            failed = [
                (row.failed_at, row.serial, row)
                for row in self._data.jobs.values()
                if row.failed_at is not None and row.failed_at >= since
            ]
        failed.sort(reverse=True)
        jobs = [
            FailedJob(id=row.id, task=row.task, queue=row.queue, ended_at=at, error=row.error)
            for at, _, row in failed[:limit]
            if owner in {None, row.owner} and team in {None, row.team}
        ]
        return Failures(jobs, capped=len(failed) > limit)

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

    async def attempts(self, job_id: UUID) -> list[Attempt] | None:
        with self._data.lock:
            row = self._data.jobs.get(job_id)
            return None if row is None else attempts_of(row, self._data.logs.get(job_id, ()))

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

    async def flows(
        self, ids: Sequence[UUID], owner: str | None = None, team: str | None = None
    ) -> list[FlowStats | None]:
        with self._data.lock:
            rows = [row for row in self._data.jobs.values() if _counts_in_flow(row, owner, team)]
        return [flow_stats(id_, [row for row in rows if row.flow_id == id_]) for id_ in ids]

    async def newest_flows(
        self,
        limit: int,
        before: UUID | None = None,
        owner: str | None = None,
        team: str | None = None,
    ) -> FlowPage:
        with self._data.lock:
            rows = sorted(self._data.jobs.values(), key=lambda row: -row.serial)
        ids = {row.flow_id for row in rows if row.flow_id is not None}
        page = sorted((id_ for id_ in ids if before is None or id_ < before), reverse=True)[:limit]
        flows = []
        for id_ in page:
            jobs = [row for row in rows if row.flow_id == id_]
            counted = [row for row in jobs[:FLOW_RANGE] if _counts_in_flow(row, owner, team)]
            stats = flow_stats(id_, counted)
            if stats is not None:
                flows.append(replace(stats, capped=len(jobs) > FLOW_RANGE))
        return FlowPage(flows, page[-1] if len(page) == limit else None)
