"""Insights computed from the other methods of a store: slow for many jobs, the same for all stores.

A new store writes only `gates` and `rollups`, and overrides what it can read faster.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from uuid import UUID

from windlass.core.clock import Instant
from windlass.core.event import Event, EventType
from windlass.core.job.attempt import Attempt, attempts_of
from windlass.core.job.failure import FailedJob, Failure, Failures
from windlass.core.job.flow_stats import FlowPage, FlowStats
from windlass.core.job.row import JobRow
from windlass.core.job.state import ACTIVE, State, Trigger
from windlass.core.query.job_query import MAX_PAGE, Count, JobQuery
from windlass.core.versioned_record import PAUSED
from windlass.store import COUNT_CAP, COUNT_RANGE, FLOW_RANGE, QueueStats, Store, StoreInsights


class QueueCounter:
    """Counts unfinished jobs by queue and state."""

    def __init__(self) -> None:
        self._counts: dict[str, dict[State, int]] = defaultdict(lambda: defaultdict(int))
        self._oldest: dict[str, Instant] = {}

    def add(self, row: JobRow) -> None:
        self._counts[row.queue][row.state] += 1
        if row.state is State.QUEUED and row.queued_at is not None:
            self._oldest[row.queue] = min(row.queued_at, self._oldest.get(row.queue, row.queued_at))

    def stats(self, paused: Sequence[str]) -> Mapping[str, QueueStats]:
        """Return the statistics of queues with unfinished jobs, and of paused queues."""
        return {
            queue: QueueStats(
                counts={s: min(n, COUNT_CAP) for s, n in self._counts[queue].items()},
                capped=frozenset(s for s, n in self._counts[queue].items() if n > COUNT_CAP),
                oldest_queued_at=self._oldest.get(queue),
                paused=queue in paused,
            )
            for queue in sorted({*self._counts, *paused})
        }


class ComputedInsights(StoreInsights):
    """Insights by `get`, `find`, `events` and `list_records`.

    No result is a snapshot: jobs may change between two reads. Failed jobs and flows are searched
    in the newest COUNT_RANGE jobs.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    async def count(self, query: JobQuery) -> Count:
        total = 0
        async for _ in self._rows(query, COUNT_CAP + 1):
            total += 1
        return Count(min(total, COUNT_CAP), capped=total > COUNT_CAP)

    async def stats(self) -> Mapping[str, QueueStats]:
        counter = QueueCounter()
        async for row in self._rows(JobQuery(states=ACTIVE)):
            counter.add(row)
        paused = await self._store.list_records(PAUSED, limit=COUNT_CAP)
        return counter.stats([entry.key for entry in paused])

    async def failures(
        self, since: Instant, limit: int, owner: str | None = None, team: str | None = None
    ) -> Failures:
        failed, scanned = [], 0
        async for row in self._rows(JobQuery(states=frozenset({State.FAILED})), COUNT_RANGE):
            scanned += 1
            if row.failed_at is not None and row.failed_at >= since:
                failed.append((row.failed_at, row.serial, row))
        failed.sort(reverse=True)
        jobs = [
            FailedJob(id=row.id, task=row.task, queue=row.queue, ended_at=at, error=row.error)
            for at, _, row in failed[:limit]
            if owner in {None, row.owner} and team in {None, row.team}
        ]
        return Failures(jobs, capped=len(failed) > limit or scanned == COUNT_RANGE)

    async def attempts(self, job_id: UUID) -> list[Attempt] | None:
        [row] = await self._store.get([job_id])
        if row is None:
            return None
        return [*await self._past_attempts(row), *attempts_of(row, ())]

    async def _past_attempts(self, row: JobRow) -> list[Attempt]:
        """Return the ended attempts in the log up to this row; newer events are ignored."""
        found: list[Attempt] = []
        queued_at: Instant = 0
        started: Event | None = None
        async for event in self._log_until(row):
            state = event.data["status"]
            if state == State.QUEUED:
                queued_at = event.at
            elif state == State.RUNNING:
                started = event
            elif state == State.RETRYING and started is not None:
                found.append(_past_attempt(queued_at, started, event))
        return found

    async def _log_until(self, row: JobRow) -> AsyncIterator[Event]:
        """Yield the status events up to the last one of this row."""
        after = 0
        while after < row.seq:
            page = await self._store.events(row.id, after)
            if page is None or not page.events:
                return
            for event in page.events:
                if event.type is EventType.JOB_STATUS and event.seq <= row.seq:
                    yield event
            after = page.events[-1].seq

    async def flows(
        self, ids: Sequence[UUID], owner: str | None = None, team: str | None = None
    ) -> list[FlowStats | None]:
        found: list[FlowStats | None] = []
        for flow_id in ids:
            query = JobQuery(flow_id=flow_id, owner=owner, team=team)
            found.append(flow_stats(flow_id, [row async for row in self._rows(query)]))
        return found

    async def newest_flows(
        self,
        limit: int,
        before: UUID | None = None,
        owner: str | None = None,
        team: str | None = None,
    ) -> FlowPage:
        jobs: dict[UUID, list[JobRow]] = defaultdict(list)  # newest first
        async for row in self._rows(JobQuery(), COUNT_RANGE):
            if row.flow_id is not None and (before is None or row.flow_id < before):
                jobs[row.flow_id].append(row)
        page = sorted(jobs, reverse=True)[:limit]
        flows = []
        for flow_id in page:
            rows = [
                row
                for row in jobs[flow_id][:FLOW_RANGE]
                if owner in {None, row.owner} and team in {None, row.team}
            ]
            stats = flow_stats(flow_id, rows)
            if stats is not None:
                flows.append(replace(stats, capped=len(jobs[flow_id]) > FLOW_RANGE))
        return FlowPage(flows, page[-1] if len(page) == limit else None)

    async def _rows(self, query: JobQuery, limit: int | None = None) -> AsyncIterator[JobRow]:
        """Yield the newest matching jobs, up to `limit`, without payloads."""
        query = replace(query, limit=MAX_PAGE, cursor=None, omit_payload=True)
        left = limit
        while left is None or left > 0:
            page = await self._store.find(query)
            for row in page.rows[:left]:
                yield row
            if page.cursor is None:
                return
            if left is not None:
                left -= len(page.rows)
            query = replace(query, cursor=page.cursor)


def _past_attempt(queued_at: Instant, started: Event, ended: Event) -> Attempt:
    data = ended.data
    return Attempt(
        number=data["attempt"],
        fence=data["attempt"],  # a claim increases both
        worker=started.data["worker"],
        queued_at=queued_at,
        started_at=started.at,
        ended_at=ended.at,
        outcome=Trigger(data["outcome"]),
        error=Failure.of(data["error"], ended.body) if data["error"] else None,
        delay=data["delay"],
        percent=data["percent"],
        stage=data["stage"],
    )


def flow_stats(flow_id: UUID, rows: Sequence[JobRow]) -> FlowStats | None:
    """Return the statistics of these jobs; of a retried job, only the newest retry counts."""
    parts = [
        (row.state, 1, row.percent, row.created_at, row.ended_at)
        for row in rows
        if row.retried_as is None
    ]
    return FlowStats.of(flow_id, parts) if parts else None
