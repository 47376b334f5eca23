"""Outcomes of attempts: retries, crashes, and outcomes that are not counted."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.core.factories import (
    LEASE,
    ONE_SECOND_BACKOFF,
    RETRYABLE,
    TERMINAL,
    assert_valid_row,
    no_jitter,
    nothing_changed,
    progress,
    request,
    row,
)
from tests.core.job_simulation import JobSimulation, reach

from windlass.core import errors
from windlass.core.clock import after
from windlass.core.decisions.maintenance import promote, rescue, sweep
from windlass.core.decisions.outcome import (
    Aborted,
    Failed,
    Released,
    Snoozed,
    Succeeded,
    Suspended,
    settle,
)
from windlass.core.decisions.transition import Status, submit
from windlass.core.event import ATTEMPT
from windlass.core.job.failure import ErrorKind, Failure
from windlass.core.job.retry_policy import Policy, custom, delays, exponential, fixed
from windlass.core.job.state import State, Trigger

FAILED = Failed(failure=RETRYABLE)


def almost_one() -> float:
    return 0.999999


# -- retries


def test_a_retryable_error_with_retries_left_waits_for_its_backoff() -> None:
    sim = JobSimulation.start(policy=Policy(backoff=exponential())).claim()
    transition = sim.settle_transition(FAILED)
    assert (transition.trigger, transition.delay, transition.error) == (
        Trigger.RETRY,
        0.25,
        RETRYABLE,
    )
    sim.transition(transition)
    assert sim.row.state is State.RETRYING
    assert sim.row.due_at == after(sim.now, 0.25)


def test_the_backoff_grows_with_the_retry_count() -> None:
    job = replace(
        JobSimulation.start(policy=Policy(backoff=exponential(), max_retries=9)).claim().row
    )
    delays = [
        settle(replace(job, retry_count=n), FAILED, random=almost_one).delay for n in range(8)
    ]
    assert delays == pytest.approx([0.5, 1, 2, 4, 8, 16, 30, 30], rel=1e-4)


def test_delays_of_60_300_900_seconds_are_used_in_order() -> None:
    sim = JobSimulation.start(policy=Policy(backoff=delays([60, 300, 900], jitter=0.2)))
    waited = []
    for _ in range(3):
        transition = sim.claim().settle_transition(FAILED)
        waited.append(transition.delay)
        sim.transition(transition)
        sim.wait(1000).promote()
    assert waited == pytest.approx([60, 300, 900])
    sim.claim().settle(FAILED)
    assert sim.row.state is State.FAILED


def test_retry_count_goes_from_0_to_3_and_the_fourth_failure_is_the_last() -> None:
    sim = JobSimulation.start(policy=Policy(backoff=fixed(1), max_retries=3))
    counts = [sim.row.retry_count]
    for expected in (1, 2, 3):
        sim.claim().settle(FAILED)
        assert sim.row.state is State.RETRYING
        assert sim.row.retry_count == expected
        assert sim.row.due_at == after(sim.now, 1)
        counts.append(sim.row.retry_count)
        sim.wait(1).promote()
    sim.claim().settle(FAILED)
    assert counts == [0, 1, 2, 3]
    assert sim.row.state is State.FAILED
    assert sim.row.retry_count == 3
    assert sim.row.attempt == 4
    assert sim.row.error == replace(RETRYABLE, attempt=4, at=sim.now)


def test_success_after_a_retry_keeps_the_count_and_drops_the_error() -> None:
    sim = JobSimulation.start().fail_once()
    sim.claim().settle(Succeeded())
    assert (sim.row.state, sim.row.retry_count) == (State.SUCCEEDED, 1)
    assert sim.row.error is None


def test_a_terminal_error_fails_at_once() -> None:
    sim = JobSimulation.start().claim()
    sim.settle(Failed(failure=TERMINAL))
    assert (sim.row.state, sim.row.retry_count) == (State.FAILED, 0)


def test_a_terminal_error_overrides_a_delay() -> None:
    transition = JobSimulation.start().claim().settle_transition(Failed(failure=TERMINAL, delay=5))
    assert (transition.trigger, transition.delay) == (Trigger.FAIL, None)


def test_without_retries_the_first_error_fails_the_job() -> None:
    sim = JobSimulation.start(policy=Policy(max_retries=0)).claim()
    sim.settle(FAILED)
    assert (sim.row.state, sim.row.retry_count) == (State.FAILED, 0)


def test_retry_after_overrides_the_backoff_and_is_counted() -> None:
    error = errors.RetryAfter(42)
    sim = JobSimulation.start().claim()
    sim.settle(Failed(failure=RETRYABLE, delay=error.delay))
    assert sim.row.due_at == after(sim.now, 42)
    assert sim.row.retry_count == 1


def test_retry_after_adds_no_retry_beyond_the_maximum() -> None:
    sim = JobSimulation.start(policy=Policy(max_retries=0)).claim()
    sim.settle(Failed(failure=RETRYABLE, delay=42))
    assert sim.row.state is State.FAILED


def test_a_retry_without_delay_is_queued_in_the_same_write() -> None:
    sim = JobSimulation.start(policy=Policy(backoff=fixed(0))).claim()
    decision = sim.settle(FAILED)
    assert decision.result.state is State.QUEUED
    assert decision.needs_position
    assert sim.row.retry_count == 1


def test_a_custom_backoff_of_the_task_is_used_if_passed() -> None:
    retries: list[int] = []

    def own(n: int) -> float:
        retries.append(n)
        return 11.0

    sim = JobSimulation.start().fail_once().claim()
    assert sim.settle_transition(FAILED, backoff=custom(own)).delay == 11
    assert retries == [1]


def test_settle_uses_the_lease_of_the_attempt() -> None:
    sim = JobSimulation.start().fail_once().claim()
    transition = sim.settle_transition(Succeeded(), records=[progress(1, 5)], children=[request()])
    assert (transition.job_id, transition.fence, transition.token) == (
        sim.row.id,
        2,
        sim.row.token,
    )
    assert transition.records == (progress(1, 5),)
    assert transition.children == (request(),)


@pytest.mark.parametrize("outcome", [FAILED, Released(), Snoozed(delay=1), Aborted()])
def test_only_success_and_suspension_have_children(outcome: Any) -> None:
    assert (
        JobSimulation.start().claim().settle_transition(outcome, children=[request()]).children
        == ()
    )
    waits = JobSimulation.start().claim().settle_transition(Suspended(), children=[request()])
    assert waits.children == (request(),)


# -- outcomes that are not counted


@pytest.mark.parametrize("outcome", [Released(), Snoozed(delay=1), Suspended(timeout=1)])
def test_release_snooze_and_suspend_are_not_counted(outcome: Any) -> None:
    sim = JobSimulation.start(policy=Policy(max_retries=0, crash_cap=1))
    for _ in range(10):
        sim.claim().settle(outcome)
        if sim.row.state is State.RETRYING:
            sim.wait(1).promote()
        assert sim.row.state is State.QUEUED
    assert (sim.row.retry_count, sim.row.crash_count, sim.row.attempt) == (0, 0, 10)
    assert sim.row.error is None
    assert not sim.row.isolated


def test_a_release_is_queued_in_the_same_write() -> None:
    sim = JobSimulation.start().claim()
    decision = sim.settle(Released())
    assert decision.result.state is State.QUEUED
    assert decision.needs_position
    assert (sim.row.queued_at, sim.row.started_at) == (sim.now, None)
    # Both state changes have an event: the end of the attempt, then the queueing.
    assert [event.data["status"] for event in sim.events()[-2:]] == ["retrying", "queued"]
    assert_valid_row(sim.row)


def test_a_snoozed_job_is_due_after_its_delay() -> None:
    sim = JobSimulation.start().claim()
    sim.settle(Snoozed(delay=30))
    assert sim.row.due_at == after(sim.now, 30)
    assert sim.wait(29).promote().result.status is Status.CONFLICT
    assert sim.wait(1).promote().result.state is State.QUEUED


def test_a_suspended_job_has_no_due_time_and_a_promote_does_not_wake_it() -> None:
    sim = JobSimulation.start().claim()
    sim.settle(Suspended())
    assert sim.row.state is State.RETRYING
    assert sim.row.due_at is None
    decision = sim.wait(1e6).promote()
    assert decision.result.status is Status.CONFLICT
    assert nothing_changed(decision)


def test_a_suspension_with_a_timeout_lasts_at_most_that_long() -> None:
    sim = JobSimulation.start().claim()
    sim.settle(Suspended(timeout=60))
    assert sim.row.due_at == after(sim.now, 60)
    assert sim.wait(60).promote().result.state is State.QUEUED


def test_a_suspended_job_can_be_canceled() -> None:
    sim = JobSimulation.start().claim()
    sim.settle(Suspended())
    assert sim.cancel().result.state is State.CANCELED


@pytest.mark.parametrize("outcome", [FAILED, Released(), Snoozed(delay=1), Suspended()])
def test_an_attempt_that_does_not_end_the_job_leaves_exactly_one_log_row(outcome: Any) -> None:
    decision = JobSimulation.start().claim().settle(outcome)
    assert [line.type for line in decision.log] == [ATTEMPT]


@pytest.mark.parametrize("outcome", [Succeeded(), Failed(failure=TERMINAL), Aborted()])
def test_an_attempt_that_ends_the_job_leaves_no_log_row(outcome: Any) -> None:
    assert not JobSimulation.start().claim().settle(outcome).log


# -- crashes


def test_the_first_rescue_has_no_delay_and_requeues_in_one_write() -> None:
    sim = JobSimulation.start(policy=Policy(backoff=fixed(10))).claim()
    decision = sim.crash()
    assert decision.result.state is State.QUEUED
    assert decision.needs_position
    assert (sim.row.crash_count, sim.row.retry_count) == (1, 0)
    assert [event.data["status"] for event in sim.events()[-2:]] == ["retrying", "queued"]
    assert_valid_row(sim.row)


def test_later_rescues_use_the_backoff_from_its_first_delay() -> None:
    job = JobSimulation.start(policy=Policy(backoff=exponential(), crash_cap=9)).claim().row
    delays = [rescue(replace(job, crash_count=n), random=almost_one).delay for n in range(6)]
    assert delays == pytest.approx([0, 0.5, 1, 2, 4, 8], rel=1e-4)


def test_a_job_that_kills_its_workers_fails_at_the_crash_cap() -> None:
    sim = JobSimulation.start(policy=Policy(backoff=fixed(1), crash_cap=3))
    for crashes in (1, 2):
        sim.claim().crash()
        assert sim.row.crash_count == crashes
        assert sim.row.state is (State.QUEUED if crashes == 1 else State.RETRYING)
    sim.wait(1).promote()
    sim.claim().crash()
    assert sim.row.state is State.FAILED
    assert (sim.row.crash_count, sim.row.retry_count) == (3, 0)
    error = sim.row.error
    assert error is not None
    assert (error.code, error.kind, error.attempt) == ("crashed", ErrorKind.TERMINAL, 3)


def test_a_crash_below_the_cap_leaves_a_retryable_error() -> None:
    sim = JobSimulation.start().claim()
    sim.crash()
    expected = Failure(code="crashed", kind=ErrorKind.RETRYABLE, attempt=1, at=sim.now)
    assert sim.row.error == expected


def test_a_crash_cap_of_one_allows_no_second_attempt() -> None:
    sim = JobSimulation.start(policy=Policy(crash_cap=1)).claim()
    sim.crash()
    assert (sim.row.state, sim.row.crash_count) == (State.FAILED, 1)


def test_crashes_do_not_use_up_retries_nor_retries_crashes() -> None:
    sim = JobSimulation.start(policy=Policy(backoff=fixed(1), max_retries=1, crash_cap=2))
    sim.claim().crash()
    sim.fail_once()
    assert (sim.row.retry_count, sim.row.crash_count) == (1, 1)
    assert sim.row.state is State.QUEUED


def test_a_job_is_isolated_after_its_first_crash() -> None:
    sim = JobSimulation.start()
    assert not sim.row.isolated
    sim.claim().crash()
    assert sim.row.isolated
    sim.claim().settle(Released())
    assert sim.row.isolated
    sim.fail_once()
    assert sim.row.isolated


def test_a_failure_does_not_isolate_a_job() -> None:
    assert not JobSimulation.start().fail_once().row.isolated


def test_a_rescue_uses_the_stored_backoff_never_a_custom_one() -> None:
    def own(_: int) -> float:
        raise AssertionError("maintenance has no task code")

    policy = Policy(backoff=custom(own, fallback=fixed(7)))
    job = replace(JobSimulation.start(policy=policy).claim().row, crash_count=1)
    assert rescue(job, random=no_jitter).delay == 7


# -- maintenance


def test_a_sweep_rescues_running_jobs_and_promotes_waiting_ones() -> None:
    running = reach(State.RUNNING)
    assert sweep(running.row, random=no_jitter).trigger is Trigger.CRASH
    assert sweep(reach(State.RETRYING).row, random=no_jitter).trigger is Trigger.PROMOTE
    assert sweep(reach(State.CREATED).row, random=no_jitter).trigger is Trigger.PROMOTE
    assert sweep(reach(State.QUEUED).row, random=no_jitter).trigger is Trigger.EXPIRE


def test_a_rescue_has_fence_and_token_of_the_row_that_was_read() -> None:
    sim = JobSimulation.start().claim()
    transition = rescue(sim.row, random=no_jitter)
    assert (transition.fence, transition.token) == (sim.row.fence, sim.row.token)
    assert promote(reach(State.RETRYING).row).fence == 1


def test_a_repeated_rescue_is_applied_once() -> None:
    sim = JobSimulation.start().claim()
    transition = rescue(sim.row, random=no_jitter)
    sim.wait(LEASE + 1).transition(transition)
    decision = sim.transition(transition)
    assert decision.result.status is Status.APPLIED
    assert nothing_changed(decision)
    assert sim.row.crash_count == 1


def test_a_submit_has_fence_zero() -> None:
    held = row(hold=True, policy=ONE_SECOND_BACKOFF)
    transition = submit(held.id)
    assert (transition.job_id, transition.fence, transition.trigger) == (held.id, 0, Trigger.SUBMIT)
