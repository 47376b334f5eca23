"""Bugs in schedules: their ticks and their marks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from tests.planted_bugs.bug import caught_by, swap

from windlass import cron
from windlass.core import schedule
from windlass.core.clock import SECOND, Instant, to_datetime
from windlass.core.ids import uuid7
from windlass.core.job.new_job import NewJob
from windlass.core.schedule import SCHEDULE, Mark, Schedule, start_schedule
from windlass.core.versioned_record import Put
from windlass.records import schedule_records
from windlass.records.schedule_records import ScheduleRecords
from windlass.store import DAY
from windlass.worker.loops import ticker
from windlass.worker.loops.ticker import Ticker

WEEK = "tests/worker/loops/test_ticker_simulation.py::test_each_tick_of_a_week_becomes_one_job"
CRON = "tests/test_cron.py::"
TICKER = "tests/worker/loops/test_ticker.py::"


@caught_by(WEEK)
def every_scheduler_enqueues_its_own_job() -> None:
    """Each scheduler enqueues a job for the tick: eight schedulers make eight jobs."""
    made = schedule.tick_job
    swap(ticker, "tick_job", lambda one, tick: replace(made(one, tick), id=uuid7()))


@caught_by(WEEK)
def the_mark_is_saved_rarely() -> None:
    """A restart continues from a mark that is two days old: later ticks run again."""
    reached = schedule.last_tick

    def planted(one: Schedule, mark: Mark | None) -> Instant:
        return max(one.since, reached(one, mark) - round(2 * DAY) * SECOND)

    swap(schedule, "last_tick", planted)


@caught_by(WEEK)
def a_tick_is_marked_before_its_enqueue() -> None:
    """A tick is marked before its enqueue: a crash between the two loses it."""
    enqueue, move = Ticker._enqueue, Ticker._advance_marks
    put_off: dict[Ticker, Sequence[NewJob]] = {}

    async def later(self: Ticker, jobs: Sequence[NewJob]) -> None:
        put_off[self] = jobs

    async def planted(self: Ticker, *given: Any) -> None:
        await move(self, *given)
        await enqueue(self, put_off.pop(self))

    swap(Ticker, "_enqueue", later)
    swap(Ticker, "_advance_marks", planted)


@caught_by(TICKER + "test_a_ticker_that_loses_a_mark_reads_again_at_once")
def a_slow_scheduler_sets_the_mark_back() -> None:
    """The last writer sets the mark, even a scheduler that is behind the others."""
    swap(ticker, "Put", lambda **fields: Put(**{**fields, "expected": None}))


@caught_by(WEEK)
def a_frozen_scheduler_continues_with_old_ticks() -> None:
    """A scheduler that was frozen for days enqueues the ticks that it read before."""
    swap(ticker, "MARK_MAX_AGE", float("inf"))


@caught_by(TICKER + "test_a_weekly_tick_fires_although_workers_restart_daily")
def every_restart_restarts_the_interval() -> None:
    """An interval counts from the process start: with daily deploys, weekly jobs never run."""

    async def planted(self: ScheduleRecords, new: Schedule) -> bool:
        made = start_schedule(new, await self._store.ping())
        await self._store.put_records([Put(kind=SCHEDULE, key=new.name, value=made.encode())])
        return True

    swap(ScheduleRecords, "_declare", planted)


@caught_by(TICKER + "test_ticks_during_a_pause_are_skipped")
def a_resumed_schedule_catches_up() -> None:
    """A resumed schedule enqueues all ticks of the pause at once."""
    swap(schedule_records, "set_paused", lambda one, _, *, paused: replace(one, paused=paused))


@caught_by(CRON + "test_a_skipped_fixed_time_ticks_right_after_the_clock_change")
def a_skipped_local_time_is_skipped() -> None:
    """A job planned for 02:30 does not run in the night when clocks move forward."""
    _by_every_showing()


@caught_by(CRON + "test_a_fixed_time_that_occurs_twice_ticks_the_first_time")
def a_repeated_local_time_runs_twice() -> None:
    """A job planned for 02:30 runs twice in the night when clocks move back."""
    _by_every_showing()


def _by_every_showing() -> None:
    simulated = cron._cron_times
    swap(cron, "_cron_times", lambda text, *given: simulated(f"0 {text}", *given))


@caught_by(CRON + "test_a_start_in_the_repeated_hour_does_not_tick_a_fixed_time_again")
def in_the_repeated_hour_the_next_tick_is_in_the_past() -> None:
    """In the repeated hour, the next tick is an hour ago, and due at once."""
    simulated = cron._cron_times

    def planted(text: str, after: Instant, zone: Any) -> Iterator[datetime]:
        now = to_datetime(after + 1)
        return (max(moment, now) for moment in simulated(text, after, zone))

    swap(cron, "_cron_times", planted)
