"""Makes jobs of the ticks of schedules.

Waits for: the next tick by the store's clock, at most a few seconds, for somebody may add or change
a schedule. Guarantees: any number of tickers may run at once, and a tick becomes one job, because
all of them give that job the same id, and none enqueues what lies before the mark, which it reads
just before. The mark moves by compare-and-set, after the enqueue. A schedule that this worker does
not understand holds up no other; one that it does not know the task of ticks all the same. Without
schedules it costs one read in a few seconds. Stops: when cancelled. A crash between an enqueue and
its mark leaves a tick to be enqueued again, which finds its job there.

What is left: a process that is frozen between its look at the mark and its enqueue, for so long
that others have run the tick's job and have deleted it since, makes that job once more. After a
pause that it notices, it looks again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from windlass.core.clock import SECOND, Instant
from windlass.core.errors import StoreError
from windlass.core.job.row import NewJob
from windlass.core.records import Entry, Put
from windlass.core.schedule import MARK, NAME_HEADER, NEVER, Due, Mark, Schedule, Ticks, due, job_of
from windlass.cron import ticks_of
from windlass.schedule_records import Timetable
from windlass.store import Store
from windlass.worker.loops.outage_log import Trouble

log = logging.getLogger("windlass.worker")
LOOK = 5.0  # seconds after which to look for new and changed schedules
AGAIN = 1.0  # seconds after which to try again what failed
STALE = 30.0  # seconds after which a mark that was read is not relied on
BATCH = 50  # schedules that are seen to in one go
SHORT = 0.001  # seconds to wait at least, for clocks that differ a little


@dataclass(slots=True)
class _Plan:
    """A schedule that was read; `next` is when to see to it, 0 if that is not known yet."""

    schedule: Schedule
    ticks: Ticks
    next: Instant = 0


class Ticker:
    """`declared` is what the app's code declares; `prepare` is what its middleware makes of a job.

    `clock` tells how long something took, in seconds; what time it is, the store says.
    """

    def __init__(
        self,
        store: Store,
        *,
        declared: Callable[[], Iterable[Schedule]] = tuple,
        prepare: Callable[[NewJob], NewJob] = lambda new: new,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._store = store
        self._timetable = Timetable(store)
        self._declared = declared
        self._prepare = prepare
        self._clock = clock
        self._known: dict[str, tuple[bytes, _Plan | None]] = {}  # None: not understood here
        self._now: Instant = 0

    async def run(self) -> None:
        trouble = Trouble("ticking")
        declared = False
        while True:
            wait = AGAIN
            try:
                if not declared:
                    await self.declare()
                    declared = True
                wait = await self.once()
                trouble.over()
            except StoreError as error:
                trouble.met(error)
            except Exception:
                log.exception("ticking failed, trying again")  # schedules must never stop for good
            await asyncio.sleep(wait)

    async def declare(self) -> None:
        """Store the schedules of the app's code, where they are new or changed."""
        for one in self._declared():
            try:
                await self._timetable.declare([one])
            except StoreError:
                raise
            except Exception:
                log.exception("schedule %r of the code cannot be stored", one.name)

    async def once(self) -> float:
        """Make jobs of the ticks that are due; answers after how many seconds to look again."""
        plans = await self._read()
        if not plans:
            return LOOK
        before, self._now = self._now, await self._store.ping()
        now = self._now
        if now < before:  # the clock was set back: what lay ahead was planned by the wrong time
            for plan in plans:
                plan.next = 0
        waiting = [plan for plan in plans if plan.next <= now]
        for start in range(0, len(waiting), BATCH):
            await self._tick(waiting[start : start + BATCH], now)
        ahead = (min(plan.next for plan in plans) - now) / SECOND
        return min(max(ahead, SHORT if ahead > 0 else 0.0), LOOK)

    async def _read(self) -> list[_Plan]:
        """All schedules; what was planned before stays so where nothing changed."""
        before, self._known = self._known, {}
        async for entry in self._timetable.entries():
            value, plan = before.get(entry.key, (None, None))
            if value != entry.value:
                plan = _understood(entry)
            self._known[entry.key] = (entry.value, plan)
        return [plan for _, plan in self._known.values() if plan is not None]

    async def _tick(self, plans: Sequence[_Plan], now: Instant) -> None:
        time = self._clock or asyncio.get_running_loop().time
        asked = time()
        keys = [str(plan.schedule.id) for plan in plans]
        marks = await self._store.get_records(MARK, keys)
        found = [_due(plan, entry, now) for plan, entry in zip(plans, marks, strict=True)]
        jobs = [job for plan, it in zip(plans, found, strict=True) for job in self._jobs(plan, it)]
        if time() - asked > STALE:
            return  # others may have been here; look again
        await self._enqueue(jobs)
        await self._move(plans, found, marks)

    async def _enqueue(self, jobs: Sequence[NewJob]) -> None:
        for answer in await self._store.enqueue(jobs):
            if not answer.accepted:
                name = answer.new.headers.get(NAME_HEADER)
                log.error("the job of a tick of schedule %r is refused: %s", name, answer.error)

    async def _move(
        self, plans: Sequence[_Plan], found: Sequence[Due], marks: Sequence[Entry | None]
    ) -> None:
        """Set the marks. Where another ticker was quicker, look again at what is left to do."""
        moved: list[tuple[_Plan, Instant]] = []
        puts: list[Put] = []
        for plan, it, entry in zip(plans, found, marks, strict=True):
            if it.ticks:
                mark = Mark(plan.schedule.since, it.ticks[-1])
                version = 0 if entry is None else entry.version
                key = str(plan.schedule.id)
                puts.append(Put(kind=MARK, key=key, value=mark.encode(), expected=version))
                moved.append((plan, it.next))
            else:
                plan.next = it.next
        answers = await self._store.put_records(puts)
        for (plan, upcoming), answer in zip(moved, answers, strict=True):
            plan.next = upcoming if answer.applied else 0

    def _jobs(self, plan: _Plan, found: Due) -> Iterable[NewJob]:
        for tick in found.ticks:
            new = job_of(plan.schedule, tick)
            try:
                yield replace(self._prepare(new), id=new.id)
            except Exception:
                log.exception("a tick of schedule %r makes no job", plan.schedule.name)


def _understood(entry: Entry) -> _Plan | None:
    try:
        schedule = Schedule.decode(entry.value)
        return _Plan(schedule, ticks_of(schedule))
    except Exception as error:  # noqa: BLE001 - whatever a newer version wrote, others must tick
        log.warning("schedule %r is left to other workers: %s", entry.key, error)
        return None


def _due(plan: _Plan, entry: Entry | None, now: Instant) -> Due:
    try:
        mark = None if entry is None else Mark.decode(entry.value)
        return due(plan.schedule, mark, plan.ticks, now)
    except Exception:
        log.exception("schedule %r cannot tick, until it is changed", plan.schedule.name)
        return Due((), NEVER)
