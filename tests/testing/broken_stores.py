"""Ten stores with one planted bug each, which the conformance suite must find."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from windlass.core.clock import Clock, Instant
from windlass.core.decisions.enqueue import Conflicts, EnqueueResult
from windlass.core.decisions.transition import (
    ApplyRequest,
    ApplyResult,
    Decision,
    Status,
    Transition,
)
from windlass.core.event import EventType
from windlass.core.job.new_job import NewJob
from windlass.core.job.progress import clamp
from windlass.core.job.row import JobRow
from windlass.core.job.state import RESCUING, State, Trigger
from windlass.store import AttemptRecords, EventPage
from windlass.stores.memory import MemoryStore
from windlass.stores.memory.data import MemoryData


class Broken(MemoryStore):
    """Base class: twins have the same bug."""

    def __init__(self, *, clock: Clock | None = None, _data: MemoryData | None = None) -> None:
        super().__init__(clock=clock, _data=_data)

    def twin(self) -> MemoryStore:
        return type(self)(_data=self._data)


class SettlesByIdOnly(Broken):
    """A settle checks neither fence nor token."""

    def _apply(self, request: ApplyRequest, now: Instant) -> ApplyResult:
        row = self._data.jobs.get(request.job_id)
        if row is not None and isinstance(request, Transition) and request.trigger.settles:
            request = replace(request, fence=row.fence, token=row.token)
        return super()._apply(request, now)


class RescuesUnseen(Broken):
    """A stale rescue is applied to whatever attempt runs now."""

    def _apply(self, request: ApplyRequest, now: Instant) -> ApplyResult:
        row = self._data.jobs.get(request.job_id)
        if row is not None and isinstance(request, Transition) and request.trigger in RESCUING:
            request = replace(request, fence=row.fence, token=row.token)
        return super()._apply(request, now)


class ClaimsTwice(Broken):
    """A running job is still in the queue."""

    def _claimable(self, queue: str, limit: int, now: Instant) -> list[JobRow]:
        line = super()._claimable(queue, limit, now)
        running = (
            row
            for row in self._data.jobs.values()
            if row.state is State.RUNNING and row.queue == queue
        )
        return [*line, *running][:limit]


class SkipsNumbers(Broken):
    """Each record takes two numbers, like a rolled-back sequence."""

    def _write(self, row: JobRow, decision: Decision, now: Instant) -> ApplyResult:
        if decision.log and "seq" in decision.changes:
            decision.changes["seq"] += 1
        return super()._write(row, decision, now)


class LowersProgress(Broken):
    """The last reported percentage is stored, even if it is lower."""

    def _record(self, entry: AttemptRecords) -> ApplyResult:
        answer = super()._record(entry)
        reported = [record.percent for record in entry.records if record.percent is not None]
        if answer.applied and reported:
            row = self._data.jobs[entry.lease.job_id]
            self._data.jobs[row.id] = replace(row, percent=clamp(reported[-1]))
        return answer


class ForgetsKeysInBulk(Broken):
    """Unique keys are checked once, before the batch."""

    _before: frozenset[UUID] = frozenset()

    async def enqueue(self, jobs: Sequence[NewJob], *, atomic: bool = False) -> list[EnqueueResult]:
        self._before = frozenset(self._data.jobs)
        return await super().enqueue(jobs, atomic=atomic)

    def _conflicts(self, new: NewJob) -> Conflicts:
        rivals = super()._conflicts(new)
        if rivals.same_key is not None and rivals.same_key.id not in self._before:
            return replace(rivals, same_key=None)
        return rivals


class RejectsRepeats(Broken):
    """A settle repeated after a lost response gets a stale result."""

    def _apply(self, request: ApplyRequest, now: Instant) -> ApplyResult:
        before = self._data.jobs.get(request.job_id)
        answer = super()._apply(request, now)
        repeat = self._data.jobs.get(request.job_id) is before
        settles = isinstance(request, Transition) and request.trigger.settles
        if answer.applied and repeat and settles:
            return ApplyResult(Status.STALE, answer.state)
        return answer


class LetsSuccessWin(Broken):
    """A success after an accepted cancel counts as a success."""

    def _apply(self, request: ApplyRequest, now: Instant) -> ApplyResult:
        row = self._data.jobs.get(request.job_id)
        succeeds = isinstance(request, Transition) and request.trigger is Trigger.SUCCEED
        if row is not None and succeeds and not row.final:
            self._data.jobs[row.id] = replace(row, cancel_at=None)
        return super()._apply(request, now)


class NewestFirst(Broken):
    """Within a priority, the newest job is claimed first."""

    def _claimable(self, queue: str, limit: int, now: Instant) -> list[JobRow]:
        line = super()._claimable(queue, len(self._data.jobs), now)
        return heapq.nsmallest(limit, line, key=lambda row: (-row.priority, -(row.position or 0)))


class RewritesEvents(Broken):
    """The events of the current attempt show the current progress, not their own."""

    async def events(self, job_id: UUID, after: int = 0, limit: int = 1000) -> EventPage | None:
        page = await super().events(job_id, after, limit)
        if page is None:
            return None
        percent = self._data.jobs[job_id].percent
        received = [
            replace(event, data={**event.data, "percent": percent})
            if event.type is EventType.JOB_STATUS
            else event
            for event in page.events
        ]
        return EventPage(received, page.ended)


BROKEN: tuple[type[Broken], ...] = (
    SettlesByIdOnly,
    RescuesUnseen,
    ClaimsTwice,
    SkipsNumbers,
    LowersProgress,
    ForgetsKeysInBulk,
    RejectsRepeats,
    LetsSuccessWin,
    NewestFirst,
    RewritesEvents,
)
