"""The log: dense numbers, events that never change, and a fold that gives the row back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.factories import (
    BEGINNINGS,
    JOB,
    NOW,
    RETRYABLE,
    STEPS,
    TERMINAL,
    Life,
    RandomLife,
    progress,
    reach,
    row,
)

from windlass.core.clock import after
from windlass.core.decisions.outcome import Aborted, Failed, Released, Snoozed, Succeeded
from windlass.core.errors import InvalidArgumentError
from windlass.core.event import ATTEMPT, Event, EventType, Record, parse_wire_id
from windlass.core.job.attempt import attempts_of
from windlass.core.job.event_log import derive, expected_fold, fold, page
from windlass.core.job.retry_policy import Policy, fixed
from windlass.core.job.state import State, Trigger

Steps = list[tuple[float, Any]]


def walk(beginning: dict[str, Any], steps: Steps) -> Iterator[RandomLife]:
    """The life before its first step and after each."""
    life = RandomLife(row(**beginning))
    yield life
    for step in steps:
        life.step(*step)
        yield life


def ended(beginning: dict[str, Any], steps: Steps) -> RandomLife:
    """The life after all steps, brought to its end."""
    *_, life = walk(beginning, steps)
    while not life.row.final:
        life.cancel()
        if life.row.state is State.RUNNING:
            life.settle(Succeeded())
    return life


# -- laws of every life


@settings(max_examples=120, deadline=None)
@given(BEGINNINGS, STEPS)
def test_events_are_numbered_1_to_n_without_gaps(beginning: dict[str, Any], steps: Steps) -> None:
    for life in walk(beginning, steps):
        assert [event.seq for event in life.events()] == list(range(1, life.row.seq + 1))


@settings(max_examples=120, deadline=None)
@given(BEGINNINGS, STEPS)
def test_the_fold_of_the_events_is_the_snapshot_of_the_row(
    beginning: dict[str, Any], steps: Steps
) -> None:
    for life in walk(beginning, steps):
        assert fold(life.events()) == expected_fold(life.row)


@settings(max_examples=120, deadline=None)
@given(BEGINNINGS, STEPS)
def test_an_event_never_changes(beginning: dict[str, Any], steps: Steps) -> None:
    read: list[Event] = []
    for life in walk(beginning, steps):
        now = life.events()
        assert now[: len(read)] == read
        read = now


@settings(max_examples=80, deadline=None)
@given(BEGINNINGS, STEPS)
def test_reading_after_any_cursor_gives_exactly_the_rest(
    beginning: dict[str, Any], steps: Steps
) -> None:
    *_, life = walk(beginning, steps)
    everything = life.events()
    for cursor in range(life.row.seq + 2):
        assert life.events(cursor) == everything[cursor:]
        # A store need only read the log rows above the cursor.
        above = [line for line in life.log if line.seq > cursor]
        assert derive(life.row, above, cursor) == everything[cursor:]


@settings(max_examples=80, deadline=None)
@given(BEGINNINGS, STEPS, st.integers(1, 5))
def test_pages_joined_are_the_whole_log(
    beginning: dict[str, Any], steps: Steps, limit: int
) -> None:
    *_, life = walk(beginning, steps)
    joined: list[Event] = []
    while part := page(life.row, life.log, len(joined), limit):
        assert len(part) <= limit
        joined += part
    assert joined == life.events()


@settings(max_examples=80, deadline=None)
@given(BEGINNINGS, STEPS, st.integers(0, 9), st.integers(0, 9))
def test_a_page_of_a_log_cut_short_ends_where_the_numbers_stop(
    beginning: dict[str, Any], steps: Steps, records: int, past: int
) -> None:
    *_, life = walk(beginning, steps)
    lines = [line for line in life.log if line.type != ATTEMPT][:records]
    lines += [line for line in life.log if line.type == ATTEMPT][:past]
    part = page(life.row, lines, 0, 1000)
    assert part == life.events()[: len(part)]


@settings(max_examples=80, deadline=None)
@given(BEGINNINGS, STEPS)
def test_a_pruned_log_begins_with_a_resync_and_folds_to_the_row(
    beginning: dict[str, Any], steps: Steps
) -> None:
    life = ended(beginning, steps)
    everything = life.events()
    for floor in range(1, life.row.seq + 1):
        pruned = replace(life.row, log_floor=floor)
        left = [line for line in life.log if line.seq > floor]
        events = derive(pruned, left)
        assert events[0].type is EventType.RESYNC
        assert events[1:] == everything[floor:]
        assert fold(events) == expected_fold(pruned)
        assert derive(pruned, left, after=floor) == everything[floor:]
        assert page(pruned, left, 0, 1000) == events


@settings(max_examples=80, deadline=None)
@given(BEGINNINGS, STEPS)
def test_percent_and_time_never_fall_along_the_log(beginning: dict[str, Any], steps: Steps) -> None:
    *_, life = walk(beginning, steps)
    events = life.events()
    shown = [e.data.get("percent", e.data.get("progressPct")) for e in events]
    percents = [percent for percent in shown if percent is not None]
    assert percents == sorted(percents)
    instants = [event.at for event in events]
    assert instants == sorted(instants)


@settings(max_examples=80, deadline=None)
@given(BEGINNINGS, STEPS)
def test_exactly_the_last_event_of_a_finished_job_is_final(
    beginning: dict[str, Any], steps: Steps
) -> None:
    for life in walk(beginning, steps):
        flags = [event.final for event in life.events()]
        assert flags == [False] * (len(flags) - 1) + [life.row.final]


@settings(max_examples=80, deadline=None)
@given(BEGINNINGS, STEPS)
def test_attempts_are_numbered_from_1_and_have_outcomes(
    beginning: dict[str, Any], steps: Steps
) -> None:
    *_, life = walk(beginning, steps)
    found = attempts_of(life.row, life.log)
    assert [attempt.number for attempt in found] == list(range(1, life.row.attempt + 1))
    for attempt in found:
        assert attempt.queued_at <= attempt.started_at
        assert attempt.error is None or attempt.error.attempt == attempt.number
        open_ = attempt.number == life.row.attempt and life.row.state is State.RUNNING
        assert (attempt.outcome is None) == (attempt.ended_at is None) == open_


# -- what the events of a life are


def test_all_events_of_a_job_without_records_are_derived_from_its_row() -> None:
    life = Life.begin().wait(1).claim("w9").wait(1)
    life.settle(Succeeded(result=b'"ok"'))
    assert life.log == []
    events = [(event.type.value, event.data["status"], event.at - NOW) for event in life.events()]
    assert events == [
        ("job-status", "created", 0),
        ("job-status", "queued", 0),
        ("job-status", "running", 1_000_000),
        ("job-completed", "succeeded", 2_000_000),
    ]
    assert life.events()[2].data["worker"] == "w9"
    assert life.events()[-1].body == b'"ok"'


def test_a_retried_job_shows_each_of_its_moves() -> None:
    life = Life.begin().fail_once()
    life.claim().settle(Failed(failure=TERMINAL))
    events = [(event.data["status"], event.data["attempt"]) for event in life.events()]
    assert events == [
        ("created", 0),
        ("queued", 0),
        ("running", 1),
        ("retrying", 1),
        ("queued", 1),
        ("running", 2),
        ("failed", 2),
    ]
    retry = life.events()[3]
    assert retry.data["outcome"] == "retry"
    assert retry.data["delay"] == 1
    assert (retry.data["retryCount"], retry.data["crashCount"]) == (1, 0)
    assert retry.data["error"]["code"] == "io"
    assert retry.body == RETRYABLE.body


def test_every_lifecycle_event_carries_the_keys_of_the_wire() -> None:
    for state in State:
        for event in reach(state).events():
            assert {"status", "stage", "phase", "percent", "attempt"} <= set(event.data)
            if event.final:
                assert event.data["jobId"] == str(JOB)


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        (State.SUCCEEDED, "job-completed"),
        (State.FAILED, "job-failed"),
        (State.CANCELED, "job-cancelled"),
    ],
)
def test_each_final_state_has_its_own_event(state: State, kind: str) -> None:
    last = reach(state).events()[-1]
    assert last.type.value == kind
    assert last.final


def test_the_final_event_has_the_error_or_the_cancel_reason() -> None:
    failed = reach(State.FAILED).events()[-1]
    assert failed.data["error"]["code"] == "invalid_input"
    assert failed.body == TERMINAL.body
    canceled = reach(State.CANCELED).events()[-1]
    assert canceled.data["message"] == "not needed"
    life = reach(State.QUEUED)
    life.cancel(by="ann", reason="late")
    assert (life.events()[-1].data["by"], life.events()[-1].data["message"]) == ("ann", "late")


def test_every_event_carries_the_correlation_id_of_its_job() -> None:
    life = Life.begin(headers={"correlation-id": "c-7"}).fail_once().claim()
    life.record(progress(1, 10))
    life.cancel()
    life.settle(Released())
    pruned = replace(life.row, log_floor=2)
    for event in [*life.events(), *derive(pruned, life.log)]:
        assert event.correlation_id == "c-7"
        assert event.job_id == JOB


def test_readers_never_see_the_row_of_a_past_attempt() -> None:
    life = Life.begin().fail_once()
    assert [line.type for line in life.log] == [ATTEMPT]
    assert {event.type for event in life.events()} == {EventType.JOB_STATUS}


def test_a_record_keeps_its_step_its_status_and_its_body() -> None:
    life = Life.begin().claim()
    life.record(Record(n=1, type=EventType.STEP_STATUS, step="one", status="running", body=b'"x"'))
    event = life.events()[-1]
    assert event.type is EventType.STEP_STATUS
    assert event.data == {"step": "one", "status": "running"}
    assert event.body == b'"x"'


def test_a_resync_of_an_empty_result_folds_to_it() -> None:
    life = Life.begin().claim()
    life.settle(Succeeded(result=b""))
    pruned = replace(life.row, log_floor=life.row.seq)
    assert fold(derive(pruned, [])) == expected_fold(pruned)


def test_a_cursor_at_the_floor_needs_no_resync() -> None:
    life = reach(State.SUCCEEDED)
    pruned = replace(life.row, log_floor=3)
    assert [event.type for event in derive(pruned, [], after=3)] == [EventType.JOB_COMPLETED]
    assert derive(pruned, [], after=2)[0].type is EventType.RESYNC
    assert derive(pruned, [], after=4) == []


def test_the_fold_of_no_events_is_empty() -> None:
    assert fold([]).state is None
    assert fold([]).seq == 0


# -- wire ids


def test_a_wire_id_is_the_milliseconds_and_the_number() -> None:
    event = Life.begin().wait(1).claim().events()[-1]
    assert event.wire_id == f"{NOW // 1000 + 1000}-3"


@settings(max_examples=40)
@given(st.integers(0, 2**53), st.integers(1, 2**53))
def test_a_wire_id_leads_back_to_its_number(at: int, seq: int) -> None:
    event = Event(job_id=JOB, seq=seq, at=at, type=EventType.LOG, data={})
    assert parse_wire_id(event.wire_id) == seq


def test_a_bare_number_is_a_cursor_too() -> None:
    assert parse_wire_id("17") == 17
    assert parse_wire_id("0") == 0


@pytest.mark.parametrize(
    "text", ["", "-", "abc", "1704067200000-", "1-x", "1-²", "1-٣", "1.5", "1-+2", "1- 2"]
)
def test_what_is_no_event_id_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="not an event id"):
        parse_wire_id(text)


def test_an_event_id_of_absurd_length_is_refused_like_any_other() -> None:
    with pytest.raises(InvalidArgumentError, match="not an event id"):
        parse_wire_id("1-" + "9" * 5000)


# -- attempts


def test_attempts_include_past_and_current_ones() -> None:
    life = Life.begin().wait(1).claim("w1").wait(2)
    life.record(progress(1, 30, "voice"))
    life.settle(Failed(failure=RETRYABLE))
    life.wait(1).promote()
    life.wait(1).claim("w2").wait(1)
    life.settle(Snoozed(delay=9))
    life.wait(9).promote()
    life.wait(1).claim("w3")
    life.record(progress(1, 50, "render"))
    first, second, third = attempts_of(life.row, life.log)
    assert (first.number, first.fence, first.worker) == (1, 1, "w1")
    assert (first.queued_at, first.started_at) == (NOW, after(NOW, 1))
    assert first.ended_at == after(NOW, 3)
    assert (first.outcome, first.delay) == (Trigger.RETRY, 1)
    assert first.error == replace(RETRYABLE, attempt=1, at=after(NOW, 3))
    assert (first.percent, first.stage) == (30, "voice")
    assert (second.worker, second.outcome, second.delay) == ("w2", Trigger.SNOOZE, 9)
    assert second.error is None
    assert (third.number, third.fence, third.worker) == (3, 3, "w3")
    assert (third.ended_at, third.outcome, third.error) == (None, None, None)
    assert (third.percent, third.stage) == (50, "render")


def test_a_waiting_job_has_only_past_attempts() -> None:
    assert attempts_of(Life.begin().row, []) == []
    life = Life.begin().fail_once()
    assert [attempt.number for attempt in attempts_of(life.row, life.log)] == [1]
    life.cancel()
    assert [attempt.number for attempt in attempts_of(life.row, life.log)] == [1]


def test_the_last_attempt_of_a_finished_job_has_its_outcome() -> None:
    life = Life.begin(policy=Policy(backoff=fixed(1), max_retries=1)).fail_once().claim()
    life.settle(Failed(failure=RETRYABLE))
    last = attempts_of(life.row, life.log)[-1]
    assert (last.number, last.outcome, last.ended_at) == (2, Trigger.FAIL, life.now)
    assert last.error == life.row.error


def test_an_attempt_does_not_show_the_error_of_an_earlier_one() -> None:
    life = Life.begin().fail_once().claim()
    life.settle(Aborted(reason="enough"))
    first, second = attempts_of(life.row, life.log)
    assert first.error is not None
    assert second.error is None
