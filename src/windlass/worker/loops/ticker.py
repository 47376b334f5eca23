"""Enqueues the jobs of due schedule ticks.

Waits for: the next tick by the store's clock, at most a few seconds, because schedules may be added
or changed. Guarantees: any number of tickers may run concurrently, and a tick becomes one job: all
of them give that job the same id, and none enqueues ticks before the mark, which is read first. The
mark moves by compare-and-set, after the enqueue. A schedule that this version cannot decode delays
no other. A schedule whose task is unknown here ticks as usual. Without schedules, the cost is one
read every few seconds. Stops: when cancelled. After a crash between an enqueue and its mark, the
tick is enqueued again and finds its job.

Known gap: a process may freeze between reading the mark and the enqueue until other workers have
run the tick's job and pruned it; then it enqueues that job again. After a pause that it notices, it
reads the mark again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from windlass.core.clock import SECOND, Instant
from windlass.core.errors import StoreError
from windlass.core.job.new_job import NewJob
from windlass.core.schedule import (
    MARK,
    NAME_HEADER,
    NEVER,
    DueTicks,
    Mark,
    Schedule,
    Ticks,
    due_ticks,
    tick_job,
)
from windlass.core.versioned_record import Entry, Put
from windlass.cron import ticks_of
from windlass.records.schedule_records import ScheduleRecords
from windlass.store import Store
from windlass.worker.loops.outage_log import OutageLog

log = logging.getLogger("windlass.worker")
RELOAD_INTERVAL = 5.0  # seconds between reads of the schedules
RETRY_DELAY = 1.0  # seconds
MARK_MAX_AGE = 30.0  # seconds after which a mark is read again
BATCH = 50  # schedules per write
MIN_WAIT = 0.001  # seconds, for clocks that differ a little


@dataclass(slots=True)
class _Plan:
    """A schedule and its next tick; 0 if that is not computed yet."""

    schedule: Schedule
    ticks: Ticks
    next: Instant = 0


class Ticker:
    """`schedules` returns the schedules of the app's code; `prepare` applies its middleware.

    `clock` measures durations in seconds. The current time comes from the store.
    """

    def __init__(
        self,
        store: Store,
        *,
        schedules: Callable[[], Iterable[Schedule]] = tuple,
        prepare: Callable[[NewJob], NewJob] = lambda new: new,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._store = store
        self._records = ScheduleRecords(store)
        self._schedules = schedules
        self._prepare = prepare
        self._clock = clock
        # By record key: the encoded schedule, and its plan or None if it cannot be decoded.
        self._plans: dict[str, tuple[bytes, _Plan | None]] = {}
        self._now: Instant = 0

    async def run(self) -> None:
        outages = OutageLog("Enqueuing scheduled jobs")
        declared = False
        while True:
            wait = RETRY_DELAY
            try:
                if not declared:
                    await self.declare()
                    declared = True
                wait = await self.once()
                outages.succeeded()
            except StoreError as error:
                outages.failed(error)
            except Exception:
                # The loop must never stop for good.
                log.exception("Enqueuing scheduled jobs failed; retrying")
            await asyncio.sleep(wait)

    async def declare(self) -> None:
        """Store new and changed schedules of the app's code."""
        for schedule in self._schedules():
            try:
                await self._records.declare([schedule])
            except StoreError:
                raise
            except Exception:
                log.exception("could not store schedule %r of the app", schedule.name)

    async def once(self) -> float:
        """Enqueue the jobs of due ticks; return the seconds until the next call."""
        plans = await self._read()
        if not plans:
            return RELOAD_INTERVAL
        previous, self._now = self._now, await self._store.ping()
        now = self._now
        if now < previous:  # the clock was set back: planned ticks are wrong
            for plan in plans:
                plan.next = 0
        due = [plan for plan in plans if plan.next <= now]
        for start in range(0, len(due), BATCH):
            await self._tick(due[start : start + BATCH], now)
        wait = (min(plan.next for plan in plans) - now) / SECOND
        return min(max(wait, MIN_WAIT if wait > 0 else 0.0), RELOAD_INTERVAL)

    async def _read(self) -> list[_Plan]:
        """Read all schedules. Unchanged ones keep their plan."""
        previous, self._plans = self._plans, {}
        async for entry in self._records.entries():
            value, plan = previous.get(entry.key, (None, None))
            if value != entry.value:
                plan = _decode(entry)
            self._plans[entry.key] = (entry.value, plan)
        return [plan for _, plan in self._plans.values() if plan is not None]

    async def _tick(self, plans: Sequence[_Plan], now: Instant) -> None:
        time = self._clock or asyncio.get_running_loop().time
        read_at = time()
        keys = [str(plan.schedule.id) for plan in plans]
        marks = await self._store.get_records(MARK, keys)
        found = [_due_ticks(plan, entry, now) for plan, entry in zip(plans, marks, strict=True)]
        pairs = zip(plans, found, strict=True)
        jobs = [job for plan, due in pairs for job in self._jobs(plan, due)]
        if time() - read_at > MARK_MAX_AGE:
            return  # another ticker may have moved the marks; read them again
        await self._enqueue(jobs)
        await self._advance_marks(plans, found, marks)

    async def _enqueue(self, jobs: Sequence[NewJob]) -> None:
        for result in await self._store.enqueue(jobs):
            if not result.accepted:
                name = result.new.headers.get(NAME_HEADER)
                log.error("schedule %r: job refused: %s", name, result.error)

    async def _advance_marks(
        self, plans: Sequence[_Plan], found: Sequence[DueTicks], marks: Sequence[Entry | None]
    ) -> None:
        """Set the marks. If another ticker was faster, compute the next tick again."""
        moved: list[tuple[_Plan, Instant]] = []
        puts: list[Put] = []
        for plan, due, entry in zip(plans, found, marks, strict=True):
            if due.ticks:
                mark = Mark(plan.schedule.since, due.ticks[-1])
                version = 0 if entry is None else entry.version
                key = str(plan.schedule.id)
                puts.append(Put(kind=MARK, key=key, value=mark.encode(), expected=version))
                moved.append((plan, due.next))
            else:
                plan.next = due.next
        results = await self._store.put_records(puts)
        for (plan, next_tick), result in zip(moved, results, strict=True):
            plan.next = next_tick if result.applied else 0

    def _jobs(self, plan: _Plan, due: DueTicks) -> Iterable[NewJob]:
        for tick in due.ticks:
            new = tick_job(plan.schedule, tick)
            try:
                yield replace(self._prepare(new), id=new.id)
            except Exception:
                log.exception("schedule %r: could not create the job of a tick", plan.schedule.name)


def _decode(entry: Entry) -> _Plan | None:
    try:
        schedule = Schedule.decode(entry.value)
        return _Plan(schedule, ticks_of(schedule))
    except Exception as error:  # noqa: BLE001 - a newer version may have written it
        log.warning("schedule %r is skipped by this worker: %s", entry.key, error)
        return None


def _due_ticks(plan: _Plan, entry: Entry | None, now: Instant) -> DueTicks:
    try:
        mark = None if entry is None else Mark.decode(entry.value)
        return due_ticks(plan.schedule, mark, plan.ticks, now)
    except Exception:
        log.exception("schedule %r is broken; no ticks until it is changed", plan.schedule.name)
        return DueTicks((), NEVER)
