"""How attempts end: every retry path, crashes, and the ends that count nowhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from tests.core.factories import (
    LEASE,
    PATIENT,
    RETRYABLE,
    TERMINAL,
    Life,
    assert_legal,
    middle,
    nothing_changed,
    progress,
    reach,
    request,
    row,
)

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


def test_a_retryable_error_with_retries_left_waits_by_the_policy() -> None:
    life = Life.begin(policy=Policy(backoff=exponential())).claim()
    transition = life.settling(FAILED)
    assert (transition.trigger, transition.delay, transition.error) == (
        Trigger.RETRY,
        0.25,
        RETRYABLE,
    )
    life.transition(transition)
    assert life.row.state is State.RETRYING
    assert life.row.due_at == after(life.now, 0.25)


def test_the_backoff_grows_with_the_failures_so_far() -> None:
    job = replace(Life.begin(policy=Policy(backoff=exponential(), max_retries=9)).claim().row)
    delays = [
        settle(replace(job, retry_count=n), FAILED, random=almost_one).delay for n in range(8)
    ]
    assert delays == pytest.approx([0.5, 1, 2, 4, 8, 16, 30, 30], rel=1e-4)


def test_the_schedule_of_60_300_900_is_walked_one_by_one() -> None:
    life = Life.begin(policy=Policy(backoff=delays([60, 300, 900], jitter=0.2)))
    waited = []
    for _ in range(3):
        transition = life.claim().settling(FAILED)
        waited.append(transition.delay)
        life.transition(transition)
        life.wait(1000).promote()
    assert waited == pytest.approx([60, 300, 900])
    life.claim().settle(FAILED)
    assert life.row.state is State.FAILED


def test_retry_count_goes_from_0_to_3_and_the_fourth_failure_is_the_last() -> None:
    life = Life.begin(policy=Policy(backoff=fixed(1), max_retries=3))
    counts = [life.row.retry_count]
    for expected in (1, 2, 3):
        life.claim().settle(FAILED)
        assert life.row.state is State.RETRYING
        assert life.row.retry_count == expected
        assert life.row.due_at == after(life.now, 1)
        counts.append(life.row.retry_count)
        life.wait(1).promote()
    life.claim().settle(FAILED)
    assert counts == [0, 1, 2, 3]
    assert life.row.state is State.FAILED
    assert life.row.retry_count == 3
    assert life.row.attempt == 4
    assert life.row.error == replace(RETRYABLE, attempt=4, at=life.now)


def test_success_after_a_retry_keeps_the_count_and_drops_the_error() -> None:
    life = Life.begin().fail_once()
    life.claim().settle(Succeeded())
    assert (life.row.state, life.row.retry_count) == (State.SUCCEEDED, 1)
    assert life.row.error is None


def test_a_terminal_error_fails_at_once() -> None:
    life = Life.begin().claim()
    life.settle(Failed(failure=TERMINAL))
    assert (life.row.state, life.row.retry_count) == (State.FAILED, 0)


def test_a_terminal_error_overrules_a_delay() -> None:
    transition = Life.begin().claim().settling(Failed(failure=TERMINAL, delay=5))
    assert (transition.trigger, transition.delay) == (Trigger.FAIL, None)


def test_with_no_retries_allowed_the_first_error_is_the_last() -> None:
    life = Life.begin(policy=Policy(max_retries=0)).claim()
    life.settle(FAILED)
    assert (life.row.state, life.row.retry_count) == (State.FAILED, 0)


def test_retry_after_overrules_the_backoff_and_is_counted() -> None:
    asked = errors.RetryAfter(42)
    life = Life.begin().claim()
    life.settle(Failed(failure=RETRYABLE, delay=asked.delay))
    assert life.row.due_at == after(life.now, 42)
    assert life.row.retry_count == 1


def test_retry_after_grants_no_retry_beyond_the_last() -> None:
    life = Life.begin(policy=Policy(max_retries=0)).claim()
    life.settle(Failed(failure=RETRYABLE, delay=42))
    assert life.row.state is State.FAILED


def test_a_retry_without_delay_is_queued_in_the_same_write() -> None:
    life = Life.begin(policy=Policy(backoff=fixed(0))).claim()
    decision = life.settle(FAILED)
    assert decision.result.state is State.QUEUED
    assert decision.needs_position
    assert life.row.retry_count == 1


def test_the_tasks_own_backoff_is_followed_where_its_code_is_at_hand() -> None:
    asked: list[int] = []

    def own(n: int) -> float:
        asked.append(n)
        return 11.0

    life = Life.begin().fail_once().claim()
    assert life.settling(FAILED, backoff=custom(own)).delay == 11
    assert asked == [1]


def test_settle_uses_the_lease_of_the_attempt() -> None:
    life = Life.begin().fail_once().claim()
    transition = life.settling(Succeeded(), records=[progress(1, 5)], children=[request()])
    assert (transition.job_id, transition.fence, transition.token) == (
        life.row.id,
        2,
        life.row.token,
    )
    assert transition.records == (progress(1, 5),)
    assert transition.children == (request(),)


@pytest.mark.parametrize("outcome", [FAILED, Released(), Snoozed(delay=1), Aborted()])
def test_children_are_handed_over_with_success_and_suspension_alone(outcome: Any) -> None:
    assert Life.begin().claim().settling(outcome, children=[request()]).children == ()
    waits = Life.begin().claim().settling(Suspended(), children=[request()])
    assert waits.children == (request(),)


# -- ends that count nowhere


@pytest.mark.parametrize("outcome", [Released(), Snoozed(delay=1), Suspended(timeout=1)])
def test_release_snooze_and_suspend_count_nowhere(outcome: Any) -> None:
    life = Life.begin(policy=Policy(max_retries=0, crash_cap=1))
    for _ in range(10):
        life.claim().settle(outcome)
        if life.row.state is State.RETRYING:
            life.wait(1).promote()
        assert life.row.state is State.QUEUED
    assert (life.row.retry_count, life.row.crash_count, life.row.attempt) == (0, 0, 10)
    assert life.row.error is None
    assert not life.row.isolated


def test_a_release_is_queued_in_the_same_write() -> None:
    life = Life.begin().claim()
    decision = life.settle(Released())
    assert decision.result.state is State.QUEUED
    assert decision.needs_position
    assert (life.row.queued_at, life.row.started_at) == (life.now, None)
    # Both moves can still be read: the end of the attempt, then the queueing.
    assert [event.data["status"] for event in life.events()[-2:]] == ["retrying", "queued"]
    assert_legal(life.row)


def test_a_snooze_comes_back_after_its_delay() -> None:
    life = Life.begin().claim()
    life.settle(Snoozed(delay=30))
    assert life.row.due_at == after(life.now, 30)
    assert life.wait(29).promote().result.status is Status.CONFLICT
    assert life.wait(1).promote().result.state is State.QUEUED


def test_a_suspended_job_has_no_due_time_and_a_promote_does_not_wake_it() -> None:
    life = Life.begin().claim()
    life.settle(Suspended())
    assert life.row.state is State.RETRYING
    assert life.row.due_at is None
    decision = life.wait(1e6).promote()
    assert decision.result.status is Status.CONFLICT
    assert nothing_changed(decision)


def test_a_suspension_with_a_timeout_lasts_at_most_that_long() -> None:
    life = Life.begin().claim()
    life.settle(Suspended(timeout=60))
    assert life.row.due_at == after(life.now, 60)
    assert life.wait(60).promote().result.state is State.QUEUED


def test_a_suspended_job_can_be_canceled() -> None:
    life = Life.begin().claim()
    life.settle(Suspended())
    assert life.cancel().result.state is State.CANCELED


@pytest.mark.parametrize("outcome", [FAILED, Released(), Snoozed(delay=1), Suspended()])
def test_an_attempt_that_does_not_end_the_job_leaves_exactly_one_log_row(outcome: Any) -> None:
    decision = Life.begin().claim().settle(outcome)
    assert [line.type for line in decision.log] == [ATTEMPT]


@pytest.mark.parametrize("outcome", [Succeeded(), Failed(failure=TERMINAL), Aborted()])
def test_an_attempt_that_ends_the_job_leaves_no_log_row(outcome: Any) -> None:
    assert not Life.begin().claim().settle(outcome).log


# -- crashes


def test_the_first_rescue_has_no_delay_and_requeues_in_one_write() -> None:
    life = Life.begin(policy=Policy(backoff=fixed(10))).claim()
    decision = life.crash()
    assert decision.result.state is State.QUEUED
    assert decision.needs_position
    assert (life.row.crash_count, life.row.retry_count) == (1, 0)
    assert [event.data["status"] for event in life.events()[-2:]] == ["retrying", "queued"]
    assert_legal(life.row)


def test_later_rescues_back_off_from_the_start_of_the_policy() -> None:
    job = Life.begin(policy=Policy(backoff=exponential(), crash_cap=9)).claim().row
    delays = [rescue(replace(job, crash_count=n), random=almost_one).delay for n in range(6)]
    assert delays == pytest.approx([0, 0.5, 1, 2, 4, 8], rel=1e-4)


def test_a_job_that_kills_its_workers_fails_at_the_crash_cap() -> None:
    life = Life.begin(policy=Policy(backoff=fixed(1), crash_cap=3))
    for crashes in (1, 2):
        life.claim().crash()
        assert life.row.crash_count == crashes
        assert life.row.state is (State.QUEUED if crashes == 1 else State.RETRYING)
    life.wait(1).promote()
    life.claim().crash()
    assert life.row.state is State.FAILED
    assert (life.row.crash_count, life.row.retry_count) == (3, 0)
    error = life.row.error
    assert error is not None
    assert (error.code, error.kind, error.attempt) == ("crashed", ErrorKind.TERMINAL, 3)


def test_a_crash_below_the_cap_leaves_a_retryable_error() -> None:
    life = Life.begin().claim()
    life.crash()
    expected = Failure(code="crashed", kind=ErrorKind.RETRYABLE, attempt=1, at=life.now)
    assert life.row.error == expected


def test_a_crash_cap_of_one_allows_no_second_attempt() -> None:
    life = Life.begin(policy=Policy(crash_cap=1)).claim()
    life.crash()
    assert (life.row.state, life.row.crash_count) == (State.FAILED, 1)


def test_crashes_do_not_use_up_retries_nor_retries_crashes() -> None:
    life = Life.begin(policy=Policy(backoff=fixed(1), max_retries=1, crash_cap=2))
    life.claim().crash()
    life.fail_once()
    assert (life.row.retry_count, life.row.crash_count) == (1, 1)
    assert life.row.state is State.QUEUED


def test_a_job_is_isolated_from_its_first_crash_on() -> None:
    life = Life.begin()
    assert not life.row.isolated
    life.claim().crash()
    assert life.row.isolated
    life.claim().settle(Released())
    assert life.row.isolated
    life.fail_once()
    assert life.row.isolated


def test_a_failure_alone_isolates_nothing() -> None:
    assert not Life.begin().fail_once().row.isolated


def test_a_rescue_follows_the_stored_backoff_and_never_the_tasks_own_code() -> None:
    def own(_: int) -> float:
        raise AssertionError("maintenance has no task code")

    policy = Policy(backoff=custom(own, fallback=fixed(7)))
    job = replace(Life.begin(policy=policy).claim().row, crash_count=1)
    assert rescue(job, random=middle).delay == 7


# -- maintenance


def test_maintenance_rescues_what_runs_and_promotes_what_waits() -> None:
    running = reach(State.RUNNING)
    assert sweep(running.row, random=middle).trigger is Trigger.CRASH
    assert sweep(reach(State.RETRYING).row, random=middle).trigger is Trigger.PROMOTE
    assert sweep(reach(State.CREATED).row, random=middle).trigger is Trigger.PROMOTE
    assert sweep(reach(State.QUEUED).row, random=middle).trigger is Trigger.EXPIRE


def test_maintenance_touches_only_the_attempt_it_saw() -> None:
    life = Life.begin().claim()
    transition = rescue(life.row, random=middle)
    assert (transition.fence, transition.token) == (life.row.fence, life.row.token)
    assert promote(reach(State.RETRYING).row).fence == 1


def test_a_repeated_rescue_is_applied_once() -> None:
    life = Life.begin().claim()
    transition = rescue(life.row, random=middle)
    life.wait(LEASE + 1).transition(transition)
    decision = life.transition(transition)
    assert decision.result.status is Status.APPLIED
    assert nothing_changed(decision)
    assert life.row.crash_count == 1


def test_a_submit_has_the_fence_of_a_job_never_claimed() -> None:
    held = row(hold=True, policy=PATIENT)
    transition = submit(held.id)
    assert (transition.job_id, transition.fence, transition.trigger) == (held.id, 0, Trigger.SUBMIT)
