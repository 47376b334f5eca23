"""Schedule records of a store: list, add, pause, delete, and update from code."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import islice, takewhile
from uuid import UUID

from windlass.core.clock import SECOND, Instant, to_datetime
from windlass.core.duration import Duration, to_seconds
from windlass.core.errors import (
    ConflictError,
    InvalidArgumentError,
    NotFoundError,
    WindlassError,
)
from windlass.core.ids import uuid7
from windlass.core.job.new_job import NewJob
from windlass.core.schedule import (
    MARK,
    NEVER,
    SCHEDULE,
    Mark,
    MissedPolicy,
    Schedule,
    check_schedule,
    last_tick,
    manual_job,
    merge_declared,
    set_paused,
    start_schedule,
    tick_job,
)
from windlass.core.versioned_record import Entry, Put
from windlass.cron import interval_microseconds, ticks_of
from windlass.store import Store

UPCOMING_TICKS = 5  # ticks that ScheduleInfo lists
log = logging.getLogger("windlass")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleInfo:
    """A schedule and its ticks.

    name: its unique name
    task: task of its jobs
    queue: queue of its jobs
    payload: arguments of its jobs, as encoded by the app's codec
    cron: minute, hour, day of month, month, day of week; None if it has an interval
    every: interval in seconds; None if it has a cron expression
    tz: time zone of the cron expression
    missed: what happens to ticks that no worker processed within a minute
    paused: whether it is paused
    declared: whether it is declared in code: a starting worker stores it again
    last_tick: the last tick that was enqueued
    last_job_id: the job of that tick, which may be deleted by now
    next_tick: the next tick; None while it is paused
    next_ticks: the next five ticks
    """

    name: str
    task: str
    queue: str
    payload: bytes
    cron: str | None
    every: float | None
    tz: str
    missed: MissedPolicy
    paused: bool
    declared: bool
    last_tick: datetime | None
    last_job_id: UUID | None
    next_tick: datetime | None
    next_ticks: tuple[datetime, ...]


def make_schedule(
    name: str,
    job: NewJob,
    *,
    cron: str | None = None,
    every: Duration | None = None,
    tz: str | None = None,
    missed: str = MissedPolicy.LAST,
) -> Schedule:
    """Return a validated schedule; `start_schedule` sets its start."""
    if (cron is None) == (every is None):
        raise InvalidArgumentError(
            f'schedule {name!r} needs either a cron expression, such as "*/5 * * * *", '
            'or every=, such as "5m"'
        )
    if cron is None and tz is not None:
        raise InvalidArgumentError(
            f"schedule {name!r} has an interval and the time zone {tz!r}; "
            "an interval has no time zone: remove tz"
        )
    if missed not in list(MissedPolicy):
        valid = ", ".join(repr(one.value) for one in MissedPolicy)
        raise InvalidArgumentError(f"missed is {missed!r}; it must be one of {valid}")
    schedule = Schedule(
        id=uuid7(),
        name=name,
        job=job,
        cron=cron,
        every=None if every is None else interval_microseconds(to_seconds(every, "every")),
        tz=tz or "UTC",
        missed=MissedPolicy(missed),
    )
    check_schedule(schedule)
    ticks_of(schedule)  # raises if the cron expression or the time zone is invalid
    return schedule


class ScheduleRecords:
    """The schedule records of a store, through one handle on its event loop."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def entries(self) -> AsyncIterator[Entry]:
        """Yield the records of all schedules by name."""
        after = ""
        while found := await self._store.list_records(SCHEDULE, after):
            for entry in found:
                yield entry
            after = found[-1].key

    async def list(self) -> Sequence[ScheduleInfo]:
        """List all schedules that this version can decode."""
        schedules: list[Schedule] = []
        async for entry in self.entries():
            try:
                schedules.append(Schedule.decode(entry.value))
            except (ValueError, TypeError, LookupError) as error:
                log.warning("schedule %r cannot be decoded by this version: %r", entry.key, error)
        return await self._infos(schedules)

    async def get(self, name: str) -> ScheduleInfo:
        schedule, _ = await self._read(name)
        [found] = await self._infos([schedule])
        return found

    async def add(self, new: Schedule) -> ScheduleInfo:
        """Store it; its ticks start now. Raises ConflictError if the name is taken."""
        new = start_schedule(new, await self._store.ping())
        [result] = await self._store.put_records([_put(new, 0)])
        if not result.applied:
            raise ConflictError(
                f"schedule {new.name!r} already exists; delete it first, or use another name"
            )
        [found] = await self._infos([new])
        return found

    async def pause(self, name: str, *, paused: bool = True) -> ScheduleInfo:
        """Pause or resume it. Ticks during the pause are dropped."""
        schedule = await self._change(name, lambda old, now: set_paused(old, now, paused=paused))
        [found] = await self._infos([schedule])
        return found

    async def delete(self, name: str) -> ScheduleInfo:
        """Delete it, and return what it was. Its jobs are kept."""
        schedule, _ = await self._read(name)
        [found] = await self._infos([schedule])
        await self._store.delete_records(SCHEDULE, [name])
        await self._store.delete_records(MARK, [str(schedule.id)])
        return found

    async def job(self, name: str) -> NewJob:
        """Return an extra job to enqueue now; also while it is paused."""
        schedule, _ = await self._read(name)
        return manual_job(schedule, uuid7(), await self._store.ping())

    async def declare(self, declared: Iterable[Schedule]) -> None:
        """Store the schedules declared in code, where the declaration changed."""
        for new in declared:
            while not await self._declare(new):
                pass  # another worker stored it meanwhile

    async def _declare(self, new: Schedule) -> bool:
        [entry] = await self._store.get_records(SCHEDULE, [new.name])
        old = None if entry is None else Schedule.decode(entry.value)
        if entry is None or old is None:
            request = _put(start_schedule(new, await self._store.ping()), 0)
        elif old.declared == new.declared:
            return True
        else:
            request = _put(merge_declared(old, new, await self._store.ping()), entry.version)
        [result] = await self._store.put_records([request])
        return result.applied

    async def _change(self, name: str, change: Callable[[Schedule, Instant], Schedule]) -> Schedule:
        while True:
            old, entry = await self._read(name)
            new = change(old, await self._store.ping())
            if new == old:
                return old
            [result] = await self._store.put_records([_put(new, entry.version)])
            if result.applied:
                return new

    async def _read(self, name: str) -> tuple[Schedule, Entry]:
        [entry] = await self._store.get_records(SCHEDULE, [name])
        if entry is None:
            raise NotFoundError(f"no schedule {name!r}")
        return Schedule.decode(entry.value), entry

    async def _infos(self, schedules: Sequence[Schedule]) -> Sequence[ScheduleInfo]:
        now = await self._store.ping()
        marks = await self._store.get_records(MARK, [str(one.id) for one in schedules])
        return [
            _info(one, None if mark is None else Mark.decode(mark.value), now)
            for one, mark in zip(schedules, marks, strict=True)
        ]


def _put(schedule: Schedule, expected: int) -> Put:
    return Put(kind=SCHEDULE, key=schedule.name, value=schedule.encode(), expected=expected)


def _next_ticks(schedule: Schedule, mark: Mark | None, now: Instant) -> tuple[Instant, ...]:
    if schedule.paused:
        return ()
    try:
        ticks = islice(ticks_of(schedule)(max(now, last_tick(schedule, mark))), UPCOMING_TICKS)
        return tuple(takewhile(lambda tick: tick < NEVER, ticks))
    except WindlassError:
        return ()  # its time zone is unknown on this machine; other workers process it


def _info(schedule: Schedule, mark: Mark | None, now: Instant) -> ScheduleInfo:
    upcoming = tuple(map(to_datetime, _next_ticks(schedule, mark, now)))
    return ScheduleInfo(
        name=schedule.name,
        task=schedule.job.task,
        queue=schedule.job.queue,
        payload=schedule.job.payload,
        cron=schedule.cron,
        every=None if schedule.every is None else schedule.every / SECOND,
        tz=schedule.tz,
        missed=schedule.missed,
        paused=schedule.paused,
        declared=schedule.declared is not None,
        last_tick=None if mark is None else to_datetime(mark.tick),
        last_job_id=None if mark is None else tick_job(schedule, mark.tick).id,
        next_tick=upcoming[0] if upcoming else None,
        next_ticks=upcoming,
    )
