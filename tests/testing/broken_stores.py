"""Ten stores with one planted mistake each. A suite that lets any of them pass proves nothing."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import replace
from uuid import UUID

from windlass.core.clock import Clock, Instant
from windlass.core.decisions.enqueue import Enqueued, Rivals
from windlass.core.decisions.transition import Answer, Decision, Status, Transition
from windlass.core.event import EventType
from windlass.core.job.progress import clamp
from windlass.core.job.row import JobRow, NewJob
from windlass.core.job.state import RESCUING, State, Trigger
from windlass.store import EventPage, Saying
from windlass.stores.memory import MemoryStore
from windlass.stores.memory.data import Data


class Broken(MemoryStore):
    """Twins are broken in the same way."""

    def __init__(self, *, clock: Clock | None = None, _data: Data | None = None) -> None:
        super().__init__(clock=clock, _data=_data)

    def twin(self) -> MemoryStore:
        return type(self)(_data=self._data)


class SettlesByIdOnly(Broken):
    """Whoever settles, settles: neither fence nor token is looked at."""

    def _apply(self, wish: Transition, now: Instant) -> Answer:
        row = self._data.jobs.get(wish.job_id)
        if row is not None and wish.trigger.settles:
            wish = replace(wish, fence=row.fence, token=row.token)
        return super()._apply(wish, now)


class RescuesUnseen(Broken):
    """A sweeper's old sight is applied to whatever attempt runs now."""

    def _apply(self, wish: Transition, now: Instant) -> Answer:
        row = self._data.jobs.get(wish.job_id)
        if row is not None and wish.trigger in RESCUING:
            wish = replace(wish, fence=row.fence, token=row.token)
        return super()._apply(wish, now)


class HandsOutTwice(Broken):
    """A job that runs is still in the line."""

    def _line(self, queue: str, limit: int, now: Instant) -> list[JobRow]:
        line = super()._line(queue, limit, now)
        running = (
            row
            for row in self._data.jobs.values()
            if row.state is State.RUNNING and row.queue == queue
        )
        return [*line, *running][:limit]


class SkipsNumbers(Broken):
    """What an attempt says takes two numbers, as a sequence does that was rolled back."""

    def _write(self, row: JobRow, decision: Decision, now: Instant) -> Answer:
        if decision.log and "seq" in decision.changes:
            decision.changes["seq"] += 1
        return super()._write(row, decision, now)


class SlipsBack(Broken):
    """The last percentage reported is the one kept."""

    def _record(self, saying: Saying) -> Answer:
        answer = super()._record(saying)
        reported = [record.percent for record in saying.records if record.percent is not None]
        if answer.applied and reported:
            row = self._data.jobs[saying.lease.job_id]
            self._data.jobs[row.id] = replace(row, percent=clamp(reported[-1]))
        return answer


class ForgetsKeysInBulk(Broken):
    """Unique keys are looked up once, before the batch."""

    _before: frozenset[UUID] = frozenset()

    async def enqueue(self, jobs: Sequence[NewJob], *, together: bool = False) -> list[Enqueued]:
        self._before = frozenset(self._data.jobs)
        return await super().enqueue(jobs, together=together)

    def _rivals(self, new: NewJob) -> Rivals:
        rivals = super()._rivals(new)
        if rivals.same_key is not None and rivals.same_key.id not in self._before:
            return replace(rivals, same_key=None)
        return rivals


class DisownsRepeats(Broken):
    """A settle repeated after a lost answer is told that it came too late."""

    def _apply(self, wish: Transition, now: Instant) -> Answer:
        before = self._data.jobs.get(wish.job_id)
        answer = super()._apply(wish, now)
        repeat = self._data.jobs.get(wish.job_id) is before
        if answer.applied and repeat and wish.trigger.settles:
            return Answer(Status.STALE, answer.state)
        return answer


class LetsSuccessWin(Broken):
    """A success that comes after an accepted cancel counts as a success."""

    def _apply(self, wish: Transition, now: Instant) -> Answer:
        row = self._data.jobs.get(wish.job_id)
        if row is not None and wish.trigger is Trigger.SUCCEED and not row.final:
            self._data.jobs[row.id] = replace(row, cancel_at=None)
        return super()._apply(wish, now)


class LastComesFirst(Broken):
    """Within a priority, the newest is handed out first."""

    def _line(self, queue: str, limit: int, now: Instant) -> list[JobRow]:
        line = super()._line(queue, len(self._data.jobs), now)
        return heapq.nsmallest(limit, line, key=lambda row: (-row.priority, -(row.position or 0)))


class RewritesEvents(Broken):
    """The events of the current attempt show the progress of now, not that of their moment."""

    async def events(self, job_id: UUID, after: int = 0, limit: int = 1000) -> EventPage | None:
        page = await super().events(job_id, after, limit)
        if page is None:
            return None
        percent = self._data.jobs[job_id].percent
        told = [
            replace(event, data={**event.data, "percent": percent})
            if event.type is EventType.JOB_STATUS
            else event
            for event in page.events
        ]
        return EventPage(told, page.ended)


BROKEN: tuple[type[Broken], ...] = (
    SettlesByIdOnly,
    RescuesUnseen,
    HandsOutTwice,
    SkipsNumbers,
    SlipsBack,
    ForgetsKeysInBulk,
    DisownsRepeats,
    LetsSuccessWin,
    LastComesFirst,
    RewritesEvents,
)
