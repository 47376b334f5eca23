"""Due ticks of a schedule, by policy, mark and time; validation and encoding of schedules."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windlass.core.clock import MINUTE, SECOND, Instant
from windlass.core.errors import InvalidArgumentError
from windlass.core.job.new_job import NewJob
from windlass.core.job.retry_policy import Policy, fixed
from windlass.core.schedule import (
    BATCH,
    NEVER,
    ON_TIME,
    DueTicks,
    Mark,
    MissedPolicy,
    Schedule,
    check_schedule,
    due_ticks,
    interval,
    manual_job,
    merge_declared,
    set_paused,
    start_schedule,
    tick_job,
)

HOUR = 60 * MINUTE
ID = UUID(int=7)
START = 1_000 * HOUR


def make(**values: Any) -> Schedule:
    job = NewJob(id=ID, task="report")
    made = Schedule(id=ID, name="hourly", job=job, every=HOUR, anchor=START, since=START)
    return replace(made, **values)


def due(schedule: Schedule, now: Instant, mark: Instant | None = None) -> DueTicks:
    assert schedule.every is not None
    reached = None if mark is None else Mark(schedule.since, mark)
    return due_ticks(schedule, reached, interval(schedule.anchor, schedule.every), now)


@pytest.mark.parametrize("missed", MissedPolicy)
def test_a_tick_on_time_becomes_a_job_under_every_policy(missed: MissedPolicy) -> None:
    one = make(missed=missed)
    assert due(one, START + HOUR - 1) == DueTicks((), START + HOUR)
    assert due(one, START + HOUR) == DueTicks((START + HOUR,), START + 2 * HOUR)
    late = START + HOUR + ON_TIME - 1
    assert due(one, late) == DueTicks((START + HOUR,), START + 2 * HOUR)


@pytest.mark.parametrize("missed", MissedPolicy)
def test_a_tick_up_to_the_mark_is_never_enqueued_again(missed: MissedPolicy) -> None:
    tick = START + HOUR
    assert due(make(missed=missed), tick + 5, mark=tick) == DueTicks((), tick + HOUR)


@pytest.mark.parametrize("missed", MissedPolicy)
def test_each_of_several_ticks_on_time_becomes_a_job(missed: MissedPolicy) -> None:
    one = make(missed=missed, every=10 * SECOND)
    now = START + 35 * SECOND
    assert due(one, now).ticks == tuple(START + n * 10 * SECOND for n in (1, 2, 3))


MISSED = START + 3 * HOUR + 2 * MINUTE


def test_policy_skip_drops_missed_ticks() -> None:
    assert due(make(missed=MissedPolicy.SKIP), MISSED) == DueTicks((), START + 4 * HOUR)


def test_policy_last_enqueues_one_job_for_all_missed_ticks() -> None:
    assert due(make(missed=MissedPolicy.LAST), MISSED) == DueTicks(
        (START + 3 * HOUR,), START + 4 * HOUR
    )


def test_a_tick_on_time_replaces_the_missed_ones() -> None:
    now = START + 3 * HOUR + 1
    for missed in (MissedPolicy.SKIP, MissedPolicy.LAST):
        assert due(make(missed=missed), now).ticks == (START + 3 * HOUR,)


def test_policy_all_enqueues_every_missed_tick_oldest_first() -> None:
    found = due(make(missed=MissedPolicy.ALL), MISSED)
    assert found == DueTicks(tuple(START + n * HOUR for n in (1, 2, 3)), START + 4 * HOUR)


def test_many_missed_ticks_are_enqueued_in_batches() -> None:
    one = make(missed=MissedPolicy.ALL)
    now = START + (BATCH + 3) * HOUR
    first = due(one, now)
    assert (len(first.ticks), first.next) == (BATCH, START + (BATCH + 1) * HOUR)
    assert first.next <= now  # so that the rest is not delayed
    assert len(due(one, now, mark=first.ticks[-1]).ticks) == 3


def test_the_newest_missed_tick_is_found_without_reading_all_ticks_of_a_year() -> None:
    ticks_read = 0

    def counted(after: Instant) -> Iterator[Instant]:
        nonlocal ticks_read
        for tick in interval(START, SECOND)(after):
            ticks_read += 1
            yield tick

    now = START + 366 * 24 * HOUR
    found = due_ticks(make(every=SECOND), None, counted, now)
    assert found.ticks[-1] == now
    assert ticks_read < 4000


def test_the_newest_missed_tick_is_found_when_ticks_are_far_apart() -> None:
    one = make(every=400 * 24 * HOUR)
    now = START + 1_100 * 24 * HOUR
    assert due(one, now).ticks == (START + 800 * 24 * HOUR,)


def test_a_clock_step_back_repeats_no_tick() -> None:
    mark = START + 5 * HOUR
    for missed in MissedPolicy:
        assert due(make(missed=missed), START + 2 * HOUR, mark) == DueTicks((), START + 6 * HOUR)


def test_a_paused_schedule_has_no_ticks() -> None:
    assert due(make(paused=True), MISSED) == DueTicks((), NEVER)


def test_ticks_during_a_pause_are_dropped() -> None:
    paused = set_paused(make(missed=MissedPolicy.ALL), START + 1, paused=True)
    resumed = set_paused(paused, MISSED, paused=False)
    assert due(resumed, MISSED) == DueTicks((), START + 4 * HOUR)


def test_a_mark_older_than_a_pause_is_ignored() -> None:
    """Pause and resume also repair a mark left by a clock that was far ahead for a moment."""
    resumed = replace(make(), since=MISSED)
    late = Mark(START, START + 900_000 * HOUR)
    ticks = interval(START, HOUR)
    assert due_ticks(resumed, late, ticks, START + 4 * HOUR).ticks == (START + 4 * HOUR,)


def test_resume_of_an_active_schedule_changes_nothing() -> None:
    assert set_paused(make(), MISSED, paused=False) == make()


def test_a_schedule_starts_now_and_counts_from_a_whole_second() -> None:
    made = start_schedule(make(), START + 5 * SECOND + 123)
    assert (made.since, made.anchor) == (START + 5 * SECOND + 123, START + 5 * SECOND)


def test_an_edit_of_the_arguments_keeps_timing_pause_and_id() -> None:
    new = make(id=UUID(int=8), job=NewJob(id=ID, task="report", payload=b"2"), declared="b")
    now = merge_declared(make(paused=True, declared="a"), new, MISSED)
    assert (now.id, now.paused, now.since, now.anchor) == (ID, True, START, START)
    assert (now.job.payload, now.declared) == (b"2", "b")


@pytest.mark.parametrize(
    "timing",
    [{"every": 2 * HOUR}, {"every": None, "cron": "* * * * *"}, {"tz": "Asia/Tokyo"}],
)
def test_a_change_of_the_timing_restarts_the_ticks(timing: dict[str, Any]) -> None:
    """Otherwise ticks of the new timing since the last tick would count as missed."""
    now = merge_declared(make(), make(**timing), MISSED)
    assert (now.id, now.since) == (ID, MISSED)


def test_the_job_of_a_tick_is_deterministic_and_unique_per_tick() -> None:
    one = make()
    assert tick_job(one, 5) == tick_job(make(), 5)
    assert (
        len({tick_job(one, 5).id, tick_job(one, 6).id, tick_job(make(id=UUID(int=8)), 5).id}) == 3
    )


def test_a_job_has_headers_of_its_schedule_and_tick() -> None:
    one = make(job=NewJob(id=ID, task="report", headers={"trace": "x"}))
    tick = tick_job(one, 1_767_225_600 * SECOND)
    assert tick.headers == {
        "trace": "x", "schedule": "hourly", "schedule-tick": "2026-01-01T00:00:00Z"
    }  # fmt: skip
    assert manual_job(one, UUID(int=9), 1_767_225_600 * SECOND) == replace(tick, id=UUID(int=9))


def test_a_schedule_round_trips() -> None:
    job = NewJob(
        id=ID, task="t", queue="q", payload=b"\x00\xff", priority=3, delay=1.5, hold=True,
        expires_in=60.0, policy=Policy(backoff=fixed(2), max_retries=7), lease=9.0, owner="o",
        team="t", tags=("a", "b"), headers={"h": "1"}, unique_key="k", debounce=True,
    )  # fmt: skip
    one = make(job=job, cron="* * * * *", every=None, tz="Asia/Tokyo", missed=MissedPolicy.ALL,
               paused=True, declared="abc")  # fmt: skip
    assert Schedule.decode(one.encode()) == one
    assert Mark.decode(Mark(3, 4).encode()) == Mark(3, 4)


def test_unknown_fields_of_a_schedule_are_ignored() -> None:
    newer = make().encode()[:-1] + b',"color":"red"}'
    assert Schedule.decode(newer) == make()


@pytest.mark.parametrize(
    ("option", "value"),
    [("request_id", "r"), ("run_at", 5), ("expires_at", 5), ("retry_of", ID), ("resume", True)],
)
def test_options_of_one_job_are_refused(option: str, value: Any) -> None:
    job: NewJob = replace(make().job, **{option: value})
    with pytest.raises(InvalidArgumentError, match=f"{option}, which applies to a single job"):
        check_schedule(make(job=job))


def test_a_schedule_with_a_custom_job_id_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="the option id, which applies to a single job"):
        check_schedule(make(job=replace(make().job, digest=b"x")))


@pytest.mark.parametrize("name", ["", "  ", "x" * 600, "a\0b"])
def test_an_invalid_schedule_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match="the name of a schedule"):
        check_schedule(make(name=name))


@given(
    st.lists(st.integers(1, 9_000), min_size=1, max_size=30),
    st.sampled_from(MissedPolicy),
    st.integers(1, 4_000),
)
def test_no_tick_is_enqueued_twice_and_policy_all_enqueues_each(
    steps: list[int], missed: MissedPolicy, every: int
) -> None:
    one = make(missed=missed, every=every * SECOND)
    now, mark = START, None
    made: list[Instant] = []
    for step in steps:
        now += step * SECOND
        while (found := due(one, now, mark)).ticks:
            made += found.ticks
            mark = made[-1]
        assert found.next > now
    assert made == sorted(set(made))
    possible = range(START + one.every, now + 1, one.every) if one.every else ()
    assert set(made) <= set(possible)
    if missed is MissedPolicy.ALL:
        assert made == list(possible)
    if missed is MissedPolicy.LAST and possible:
        assert made[-1] == possible[-1]
