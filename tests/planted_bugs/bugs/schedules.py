"""Mistakes in what makes jobs by itself: schedules, their ticks, their marks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from tests.planted_bugs.bug import caught_by, swap

from windlass import cron, schedule_records
from windlass.core import schedule
from windlass.core.clock import SECOND, Instant, to_datetime
from windlass.core.ids import uuid7
from windlass.core.job.row import NewJob
from windlass.core.records import Put
from windlass.core.schedule import SCHEDULE, Mark, Schedule, begun
from windlass.schedule_records import Timetable
from windlass.store import DAY
from windlass.worker.loops import ticker
from windlass.worker.loops.ticker import Ticker

WEEK = (
    "tests/worker/loops/test_simulated_month.py::test_a_week_shows_a_tick_that_is_lost_or_repeated"
)
CRON = "tests/test_cron.py::"
TICKER = "tests/worker/loops/test_ticker.py::"


@caught_by(WEEK)
def every_scheduler_makes_a_job_of_its_own() -> None:
    """Each scheduler enqueues a job for the tick: with eight of them there are eight."""
    made = schedule.job_of
    swap(ticker, "job_of", lambda one, tick: replace(made(one, tick), id=uuid7()))


@caught_by(WEEK)
def how_far_it_was_is_noted_now_and_then() -> None:
    """A restart goes on from a note that is two days old: what ran since is run once more."""
    reached = schedule.reached

    def planted(one: Schedule, mark: Mark | None) -> Instant:
        return max(one.since, reached(one, mark) - round(2 * DAY) * SECOND)

    swap(schedule, "reached", planted)


@caught_by(WEEK)
def a_tick_is_noted_before_it_is_enqueued() -> None:
    """It is noted that a tick is done, and then it is done: who dies between the two loses it."""
    enqueue, move = Ticker._enqueue, Ticker._move
    put_off: dict[Ticker, Sequence[NewJob]] = {}

    async def later(self: Ticker, jobs: Sequence[NewJob]) -> None:
        put_off[self] = jobs

    async def planted(self: Ticker, *given: Any) -> None:
        await move(self, *given)
        await enqueue(self, put_off.pop(self))

    swap(Ticker, "_enqueue", later)
    swap(Ticker, "_move", planted)


@caught_by(TICKER + "test_who_is_beaten_to_a_mark_looks_again_at_once")
def a_slow_scheduler_sets_the_mark_back() -> None:
    """Whoever writes last says how far it is, also one who is behind the others."""
    swap(ticker, "Put", lambda **fields: Put(**{**fields, "expected": None}))


@caught_by(WEEK)
def who_was_frozen_goes_on_as_if_nothing_had_happened() -> None:
    """A scheduler that stood still for days enqueues what was due when it last looked."""
    swap(ticker, "STALE", float("inf"))


@caught_by(TICKER + "test_a_tick_comes_though_workers_restart_more_often_than_it")
def every_start_begins_the_interval_anew() -> None:
    """An interval counts from the start of the process: who deploys daily has no weekly jobs."""

    async def planted(self: Timetable, new: Schedule) -> bool:
        made = begun(new, await self._store.ping())
        await self._store.put_records([Put(kind=SCHEDULE, key=new.name, value=made.encode())])
        return True

    swap(Timetable, "_declare", planted)


@caught_by(TICKER + "test_the_ticks_of_a_pause_do_not_come_back")
def what_was_paused_catches_up() -> None:
    """Whoever resumes a schedule gets the ticks of the pause, all at once."""
    swap(schedule_records, "set_paused", lambda one, _, *, paused: replace(one, paused=paused))


@caught_by(CRON + "test_a_fixed_time_that_the_clocks_skip_ticks_when_they_have_skipped_it")
def a_time_that_the_clocks_skip_is_skipped() -> None:
    """What is planned for half past two does not run on the night when clocks go forward."""
    _by_every_showing()


@caught_by(CRON + "test_a_fixed_time_that_the_clocks_show_twice_ticks_the_first_time")
def a_time_that_the_clocks_show_twice_runs_twice() -> None:
    """What is planned for half past two runs twice on the night when clocks go back."""
    _by_every_showing()


def _by_every_showing() -> None:
    simulated = cron._simulated
    swap(cron, "_simulated", lambda text, *given: simulated(f"0 {text}", *given))


@caught_by(CRON + "test_from_within_the_second_showing_a_fixed_time_is_not_found_again")
def in_the_doubled_hour_the_next_tick_lies_in_the_past() -> None:
    """In the hour that comes twice, the next tick is one of an hour ago, and due at once."""
    simulated = cron._simulated

    def planted(text: str, after: Instant, zone: Any) -> Iterator[datetime]:
        now = to_datetime(after + 1)
        return (max(moment, now) for moment in simulated(text, after, zone))

    swap(cron, "_simulated", planted)
