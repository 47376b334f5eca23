"""The schedules of a store: listed, added, paused, deleted, and brought in line with the code."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice, takewhile
from uuid import UUID

from windlass.core.clock import SECOND, Instant, to_datetime
from windlass.core.duration import Duration, seconds
from windlass.core.errors import (
    ConflictError,
    InvalidArgumentError,
    NotFoundError,
    WindlassError,
)
from windlass.core.ids import uuid7
from windlass.core.job.row import NewJob
from windlass.core.records import Entry, Put
from windlass.core.schedule import (
    MARK,
    NEVER,
    SCHEDULE,
    Mark,
    Missed,
    Schedule,
    begun,
    check_schedule,
    edited,
    extra_job,
    job_of,
    reached,
    set_paused,
)
from windlass.cron import microseconds, ticks_of
from windlass.store import Store

SHOWN = 5  # ticks to come
log = logging.getLogger("windlass")


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A schedule as it stands, when somebody asked.

    name: by which it is paused, deleted and run
    task: the task of its jobs
    queue: the queue of its jobs
    payload: their arguments, as the app's codec wrote them
    cron: minute, hour, day of month, month, day of week; None if it has an interval
    every: seconds from one tick to the next; None if it has a cron text
    tz: the time zone of the cron text
    missed: what becomes of ticks that no worker saw within a minute
    paused: whether it makes no jobs for now
    declared: whether code declares it: a worker that starts would bring it back
    last_tick: the last instant that became a job
    last_job_id: the job that it made then, which may be deleted by now
    next_tick: the next one to come; None while it is paused
    next_ticks: the next five
    """

    name: str
    task: str
    queue: str
    payload: bytes
    cron: str | None
    every: float | None
    tz: str
    missed: Missed
    paused: bool
    declared: bool
    last_tick: datetime | None
    last_job_id: UUID | None
    next_tick: datetime | None
    next_ticks: tuple[datetime, ...]


def plan(
    name: str,
    job: NewJob,
    *,
    cron: str | None = None,
    every: Duration | None = None,
    tz: str | None = None,
    missed: str = Missed.LAST,
) -> Schedule:
    """A schedule of these settings, checked; it has still to begin."""
    if (cron is None) == (every is None):
        raise InvalidArgumentError(
            f'schedule {name!r} needs either a cron text, such as "*/5 * * * *", '
            'or every=, such as "5m"'
        )
    if cron is None and tz is not None:
        raise InvalidArgumentError(
            f"schedule {name!r} has an interval and the time zone {tz!r}; "
            "an interval is the same everywhere: leave tz out"
        )
    if missed not in list(Missed):
        known = ", ".join(repr(one.value) for one in Missed)
        raise InvalidArgumentError(f"missed is {missed!r}; it may be {known}")
    made = Schedule(
        id=uuid7(),
        name=name,
        job=job,
        cron=cron,
        every=None if every is None else microseconds(seconds(every, "every")),
        tz=tz or "UTC",
        missed=Missed(missed),
    )
    check_schedule(made)
    ticks_of(made)  # which refuses a cron text or a time zone that is none
    return made


class Timetable:
    """Speaks to one store handle, on the event loop that owns it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def entries(self) -> AsyncIterator[Entry]:
        """The records of all schedules, in the order of their names."""
        after = ""
        while found := await self._store.list_records(SCHEDULE, after):
            for entry in found:
                yield entry
            after = found[-1].key

    async def list(self) -> Sequence[Planned]:
        """All that this version understands."""
        schedules: list[Schedule] = []
        async for entry in self.entries():
            try:
                schedules.append(Schedule.decode(entry.value))
            except (ValueError, TypeError, LookupError) as error:
                log.warning("schedule %r cannot be read here: %r", entry.key, error)
        return await self._planned(schedules)

    async def get(self, name: str) -> Planned:
        schedule, _ = await self._read(name)
        [found] = await self._planned([schedule])
        return found

    async def add(self, new: Schedule) -> Planned:
        """Begin it now; a name that is taken is a conflict."""
        new = begun(new, await self._store.ping())
        [answer] = await self._store.put_records([_put(new, 0)])
        if not answer.applied:
            raise ConflictError(
                f"there is a schedule {new.name!r} already; "
                "delete it first, or give this one another name"
            )
        [found] = await self._planned([new])
        return found

    async def pause(self, name: str, *, paused: bool = True) -> Planned:
        """Make no jobs until it is resumed; the ticks of a pause do not come back."""
        schedule = await self._change(name, lambda old, now: set_paused(old, now, paused=paused))
        [found] = await self._planned([schedule])
        return found

    async def delete(self, name: str) -> Planned:
        """Forget it; the jobs that it made stay. Answers what it was."""
        schedule, _ = await self._read(name)
        [found] = await self._planned([schedule])
        await self._store.delete_records(SCHEDULE, [name])
        await self._store.delete_records(MARK, [str(schedule.id)])
        return found

    async def job(self, name: str) -> NewJob:
        """A job of it beside its ticks, to be enqueued now, also while it is paused."""
        schedule, _ = await self._read(name)
        return extra_job(schedule, uuid7(), await self._store.ping())

    async def declare(self, declared: Iterable[Schedule]) -> None:
        """Store what code declares, where it says something else than when it was stored."""
        for new in declared:
            while not await self._declare(new):
                pass  # another worker starts, too

    async def _declare(self, new: Schedule) -> bool:
        [entry] = await self._store.get_records(SCHEDULE, [new.name])
        old = None if entry is None else Schedule.decode(entry.value)
        if entry is None or old is None:
            wish = _put(begun(new, await self._store.ping()), 0)
        elif old.declared == new.declared:
            return True
        else:
            wish = _put(edited(old, new, await self._store.ping()), entry.version)
        [answer] = await self._store.put_records([wish])
        return answer.applied

    async def _change(self, name: str, change: Callable[[Schedule, Instant], Schedule]) -> Schedule:
        while True:
            old, entry = await self._read(name)
            new = change(old, await self._store.ping())
            if new == old:
                return old
            [answer] = await self._store.put_records([_put(new, entry.version)])
            if answer.applied:
                return new

    async def _read(self, name: str) -> tuple[Schedule, Entry]:
        [entry] = await self._store.get_records(SCHEDULE, [name])
        if entry is None:
            raise NotFoundError(f"no schedule {name!r}")
        return Schedule.decode(entry.value), entry

    async def _planned(self, schedules: Sequence[Schedule]) -> Sequence[Planned]:
        now = await self._store.ping()
        marks = await self._store.get_records(MARK, [str(one.id) for one in schedules])
        return [
            _planned(one, None if mark is None else Mark.decode(mark.value), now)
            for one, mark in zip(schedules, marks, strict=True)
        ]


def _put(schedule: Schedule, expected: int) -> Put:
    return Put(kind=SCHEDULE, key=schedule.name, value=schedule.encode(), expected=expected)


def _next(one: Schedule, mark: Mark | None, now: Instant) -> tuple[Instant, ...]:
    if one.paused:
        return ()
    try:
        ticks = islice(ticks_of(one)(max(now, reached(one, mark))), SHOWN)
        return tuple(takewhile(lambda tick: tick < NEVER, ticks))
    except WindlassError:
        return ()  # its time zone is not known here; a worker that knows it ticks


def _planned(one: Schedule, mark: Mark | None, now: Instant) -> Planned:
    upcoming = tuple(map(to_datetime, _next(one, mark, now)))
    return Planned(
        name=one.name,
        task=one.job.task,
        queue=one.job.queue,
        payload=one.job.payload,
        cron=one.cron,
        every=None if one.every is None else one.every / SECOND,
        tz=one.tz,
        missed=one.missed,
        paused=one.paused,
        declared=one.declared is not None,
        last_tick=None if mark is None else to_datetime(mark.tick),
        last_job_id=None if mark is None else job_of(one, mark.tick).id,
        next_tick=upcoming[0] if upcoming else None,
        next_ticks=upcoming,
    )
