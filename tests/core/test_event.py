"""Event log: numbers without gaps, immutable events, and a fold that matches the row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.factories import (
    JOB,
    NOW,
    RETRYABLE,
    TERMINAL,
    progress,
    row,
)
from tests.core.job_simulation import (
    NEW_JOB_OPTIONS,
    STEPS,
    JobSimulation,
    RandomJobSimulation,
    reach,
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


def walk(options: dict[str, Any], steps: Steps) -> Iterator[RandomJobSimulation]:
    """Yield the simulation before its first step and after each."""
    sim = RandomJobSimulation(row(**options))
    yield sim
    for step in steps:
        sim.step(*step)
        yield sim


def ended(options: dict[str, Any], steps: Steps) -> RandomJobSimulation:
    """Return the simulation after all steps, with the job ended."""
    *_, sim = walk(options, steps)
    while not sim.row.final:
        sim.cancel()
        if sim.row.state is State.RUNNING:
            sim.settle(Succeeded())
    return sim


# -- rules for every history


@settings(max_examples=120, deadline=None)
@given(NEW_JOB_OPTIONS, STEPS)
def test_events_are_numbered_1_to_n_without_gaps(options: dict[str, Any], steps: Steps) -> None:
    for sim in walk(options, steps):
        assert [event.seq for event in sim.events()] == list(range(1, sim.row.seq + 1))


@settings(max_examples=120, deadline=None)
@given(NEW_JOB_OPTIONS, STEPS)
def test_the_fold_of_all_events_matches_the_row(options: dict[str, Any], steps: Steps) -> None:
    for sim in walk(options, steps):
        assert fold(sim.events()) == expected_fold(sim.row)


@settings(max_examples=120, deadline=None)
@given(NEW_JOB_OPTIONS, STEPS)
def test_an_event_never_changes(options: dict[str, Any], steps: Steps) -> None:
    read: list[Event] = []
    for sim in walk(options, steps):
        now = sim.events()
        assert now[: len(read)] == read
        read = now


@settings(max_examples=80, deadline=None)
@given(NEW_JOB_OPTIONS, STEPS)
def test_reading_after_any_cursor_gives_exactly_the_rest(
    options: dict[str, Any], steps: Steps
) -> None:
    *_, sim = walk(options, steps)
    everything = sim.events()
    for cursor in range(sim.row.seq + 2):
        assert sim.events(cursor) == everything[cursor:]
        # A store need only read the log rows above the cursor.
        above = [line for line in sim.log if line.seq > cursor]
        assert derive(sim.row, above, cursor) == everything[cursor:]


@settings(max_examples=80, deadline=None)
@given(NEW_JOB_OPTIONS, STEPS, st.integers(1, 5))
def test_pages_joined_are_the_whole_log(options: dict[str, Any], steps: Steps, limit: int) -> None:
    *_, sim = walk(options, steps)
    joined: list[Event] = []
    while part := page(sim.row, sim.log, len(joined), limit):
        assert len(part) <= limit
        joined += part
    assert joined == sim.events()


@settings(max_examples=80, deadline=None)
@given(NEW_JOB_OPTIONS, STEPS, st.integers(0, 9), st.integers(0, 9))
def test_a_page_of_a_truncated_log_ends_at_the_first_gap(
    options: dict[str, Any], steps: Steps, records: int, past: int
) -> None:
    *_, sim = walk(options, steps)
    lines = [line for line in sim.log if line.type != ATTEMPT][:records]
    lines += [line for line in sim.log if line.type == ATTEMPT][:past]
    part = page(sim.row, lines, 0, 1000)
    assert part == sim.events()[: len(part)]


@settings(max_examples=80, deadline=None)
@given(NEW_JOB_OPTIONS, STEPS)
def test_a_pruned_log_begins_with_a_resync_and_folds_to_the_row(
    options: dict[str, Any], steps: Steps
) -> None:
    sim = ended(options, steps)
    everything = sim.events()
    for floor in range(1, sim.row.seq + 1):
        pruned = replace(sim.row, log_floor=floor)
        left = [line for line in sim.log if line.seq > floor]
        events = derive(pruned, left)
        assert events[0].type is EventType.RESYNC
        assert events[1:] == everything[floor:]
        assert fold(events) == expected_fold(pruned)
        assert derive(pruned, left, after=floor) == everything[floor:]
        assert page(pruned, left, 0, 1000) == events


@settings(max_examples=80, deadline=None)
@given(NEW_JOB_OPTIONS, STEPS)
def test_percent_and_instant_never_decrease_along_the_log(
    options: dict[str, Any], steps: Steps
) -> None:
    *_, sim = walk(options, steps)
    events = sim.events()
    shown = [e.data.get("percent", e.data.get("progressPct")) for e in events]
    percents = [percent for percent in shown if percent is not None]
    assert percents == sorted(percents)
    instants = [event.at for event in events]
    assert instants == sorted(instants)


@settings(max_examples=80, deadline=None)
@given(NEW_JOB_OPTIONS, STEPS)
def test_exactly_the_last_event_of_a_finished_job_is_final(
    options: dict[str, Any], steps: Steps
) -> None:
    for sim in walk(options, steps):
        flags = [event.final for event in sim.events()]
        assert flags == [False] * (len(flags) - 1) + [sim.row.final]


@settings(max_examples=80, deadline=None)
@given(NEW_JOB_OPTIONS, STEPS)
def test_attempts_are_numbered_from_1_and_have_outcomes(
    options: dict[str, Any], steps: Steps
) -> None:
    *_, sim = walk(options, steps)
    found = attempts_of(sim.row, sim.log)
    assert [attempt.number for attempt in found] == list(range(1, sim.row.attempt + 1))
    for attempt in found:
        assert attempt.queued_at <= attempt.started_at
        assert attempt.error is None or attempt.error.attempt == attempt.number
        open_ = attempt.number == sim.row.attempt and sim.row.state is State.RUNNING
        assert (attempt.outcome is None) == (attempt.ended_at is None) == open_


# -- events of one job


def test_all_events_of_a_job_without_records_are_derived_from_its_row() -> None:
    sim = JobSimulation.start().wait(1).claim("w9").wait(1)
    sim.settle(Succeeded(result=b'"ok"'))
    assert sim.log == []
    events = [(event.type.value, event.data["status"], event.at - NOW) for event in sim.events()]
    assert events == [
        ("job-status", "created", 0),
        ("job-status", "queued", 0),
        ("job-status", "running", 1_000_000),
        ("job-completed", "succeeded", 2_000_000),
    ]
    assert sim.events()[2].data["worker"] == "w9"
    assert sim.events()[-1].body == b'"ok"'


def test_a_retried_job_has_an_event_for_each_state_change() -> None:
    sim = JobSimulation.start().fail_once()
    sim.claim().settle(Failed(failure=TERMINAL))
    events = [(event.data["status"], event.data["attempt"]) for event in sim.events()]
    assert events == [
        ("created", 0),
        ("queued", 0),
        ("running", 1),
        ("retrying", 1),
        ("queued", 1),
        ("running", 2),
        ("failed", 2),
    ]
    retry = sim.events()[3]
    assert retry.data["outcome"] == "retry"
    assert retry.data["delay"] == 1
    assert (retry.data["retryCount"], retry.data["crashCount"]) == (1, 0)
    assert retry.data["error"]["code"] == "io"
    assert retry.body == RETRYABLE.body


def test_every_lifecycle_event_has_the_specified_keys() -> None:
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
    sim = reach(State.QUEUED)
    sim.cancel(by="ann", reason="late")
    assert (sim.events()[-1].data["by"], sim.events()[-1].data["message"]) == ("ann", "late")


def test_every_event_has_the_correlation_id_of_its_job() -> None:
    sim = JobSimulation.start(headers={"correlation-id": "c-7"}).fail_once().claim()
    sim.record(progress(1, 10))
    sim.cancel()
    sim.settle(Released())
    pruned = replace(sim.row, log_floor=2)
    for event in [*sim.events(), *derive(pruned, sim.log)]:
        assert event.correlation_id == "c-7"
        assert event.job_id == JOB


def test_readers_never_see_the_row_of_a_past_attempt() -> None:
    sim = JobSimulation.start().fail_once()
    assert [line.type for line in sim.log] == [ATTEMPT]
    assert {event.type for event in sim.events()} == {EventType.JOB_STATUS}


def test_an_event_of_a_record_has_step_status_and_body() -> None:
    sim = JobSimulation.start().claim()
    sim.record(Record(n=1, type=EventType.STEP_STATUS, step="one", status="running", body=b'"x"'))
    event = sim.events()[-1]
    assert event.type is EventType.STEP_STATUS
    assert event.data == {"step": "one", "status": "running"}
    assert event.body == b'"x"'


def test_a_resync_keeps_an_empty_result() -> None:
    sim = JobSimulation.start().claim()
    sim.settle(Succeeded(result=b""))
    pruned = replace(sim.row, log_floor=sim.row.seq)
    assert fold(derive(pruned, [])) == expected_fold(pruned)


def test_a_cursor_at_the_floor_needs_no_resync() -> None:
    sim = reach(State.SUCCEEDED)
    pruned = replace(sim.row, log_floor=3)
    assert [event.type for event in derive(pruned, [], after=3)] == [EventType.JOB_COMPLETED]
    assert derive(pruned, [], after=2)[0].type is EventType.RESYNC
    assert derive(pruned, [], after=4) == []


def test_the_fold_of_no_events_is_empty() -> None:
    assert fold([]).state is None
    assert fold([]).seq == 0


# -- wire ids


def test_a_wire_id_is_the_milliseconds_and_the_number() -> None:
    event = JobSimulation.start().wait(1).claim().events()[-1]
    assert event.wire_id == f"{NOW // 1000 + 1000}-3"


@settings(max_examples=40)
@given(st.integers(0, 2**53), st.integers(1, 2**53))
def test_a_wire_id_is_parsed_to_its_number(at: int, seq: int) -> None:
    event = Event(job_id=JOB, seq=seq, at=at, type=EventType.LOG, data={})
    assert parse_wire_id(event.wire_id) == seq


def test_a_plain_number_is_a_valid_cursor() -> None:
    assert parse_wire_id("17") == 17
    assert parse_wire_id("0") == 0


@pytest.mark.parametrize(
    "text", ["", "-", "abc", "1704067200000-", "1-x", "1-²", "1-٣", "1.5", "1-+2", "1- 2"]
)
def test_an_invalid_event_id_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError, match="not an event id"):
        parse_wire_id(text)


def test_an_oversize_event_id_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="not an event id"):
        parse_wire_id("1-" + "9" * 5000)


# -- attempts


def test_attempts_include_past_and_current_ones() -> None:
    sim = JobSimulation.start().wait(1).claim("w1").wait(2)
    sim.record(progress(1, 30, "voice"))
    sim.settle(Failed(failure=RETRYABLE))
    sim.wait(1).promote()
    sim.wait(1).claim("w2").wait(1)
    sim.settle(Snoozed(delay=9))
    sim.wait(9).promote()
    sim.wait(1).claim("w3")
    sim.record(progress(1, 50, "render"))
    first, second, third = attempts_of(sim.row, sim.log)
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
    assert attempts_of(JobSimulation.start().row, []) == []
    sim = JobSimulation.start().fail_once()
    assert [attempt.number for attempt in attempts_of(sim.row, sim.log)] == [1]
    sim.cancel()
    assert [attempt.number for attempt in attempts_of(sim.row, sim.log)] == [1]


def test_the_last_attempt_of_a_finished_job_has_its_outcome() -> None:
    sim = JobSimulation.start(policy=Policy(backoff=fixed(1), max_retries=1)).fail_once().claim()
    sim.settle(Failed(failure=RETRYABLE))
    last = attempts_of(sim.row, sim.log)[-1]
    assert (last.number, last.outcome, last.ended_at) == (2, Trigger.FAIL, sim.now)
    assert last.error == sim.row.error


def test_an_attempt_does_not_show_the_error_of_an_earlier_one() -> None:
    sim = JobSimulation.start().fail_once().claim()
    sim.settle(Aborted(reason="enough"))
    first, second = attempts_of(sim.row, sim.log)
    assert first.error is not None
    assert second.error is None
