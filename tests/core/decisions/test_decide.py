"""Decisions about a stored job: instants, progress, cancel, repeats, stale writes, records."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from tests.core.factories import (
    LEASE,
    NOW,
    OTHER,
    RETRYABLE,
    TERMINAL,
    TOKEN,
    WRONG_TOKEN,
    assert_valid_row,
    nothing_changed,
    progress,
    request,
    row,
    token,
)
from tests.core.job_simulation import (
    NEW_JOB_OPTIONS,
    STEPS,
    JobSimulation,
    RandomJobSimulation,
    reach,
)

from windlass.core.clock import SECOND, after
from windlass.core.decisions import decide
from windlass.core.decisions.decide import claim, record
from windlass.core.decisions.outcome import (
    Aborted,
    Failed,
    Outcome,
    Released,
    Snoozed,
    Succeeded,
    Suspended,
)
from windlass.core.decisions.transition import RollupSample, Status, Transition, submit
from windlass.core.event import EventType, Record
from windlass.core.job.failure import ErrorKind
from windlass.core.job.retry_policy import Policy, fixed
from windlass.core.job.state import FINAL, State, Trigger

OUTCOMES: list[Any] = [
    pytest.param(Succeeded(result=b'"done"'), id="success"),
    pytest.param(Failed(failure=TERMINAL), id="failure"),
    pytest.param(Failed(failure=RETRYABLE), id="retry"),
    pytest.param(Released(), id="release"),
    pytest.param(Snoozed(delay=5), id="snooze"),
    pytest.param(Suspended(), id="suspend"),
    pytest.param(Suspended(timeout=5), id="suspend with a timeout"),
    pytest.param(Aborted(reason="enough"), id="abort"),
]
NON_FINAL_OUTCOMES: list[Any] = OUTCOMES[2:7]
HOUR = 3600.0

# -- time


@settings(max_examples=120, deadline=None)
@given(NEW_JOB_OPTIONS, STEPS)
def test_every_row_of_every_history_is_valid_under_clock_jumps(
    options: dict[str, Any], steps: list[tuple[float, Any]]
) -> None:
    sim = RandomJobSimulation(row(**options))
    assert_valid_row(sim.row)
    for step in steps:
        before = sim.row
        sim.step(*step)
        now = sim.row
        assert_valid_row(now)
        assert now.created_at == before.created_at
        assert now.updated_at >= before.updated_at
        assert now.percent >= before.percent
        assert now.seq >= before.seq
        assert now.fence >= before.fence
        assert now.retry_count <= now.policy.max_retries
        assert now.crash_count <= now.policy.crash_cap
        if before.first_started_at is not None:
            assert now.first_started_at == before.first_started_at
        if before.final:
            assert now == before, "a finished job never changes"


def test_created_queued_started_and_ended_stay_in_order_when_the_clock_steps_back() -> None:
    sim = JobSimulation.start(delay=10).wait(11)
    sim.promote()
    sim.wait(-HOUR).claim().wait(-HOUR)
    sim.record(progress(1, 10))
    sim.wait(-HOUR).settle(Succeeded())
    done = sim.row
    assert done.created_at == NOW
    assert done.queued_at == done.started_at == done.ended_at == done.updated_at
    assert done.queued_at == after(NOW, 11)


def test_without_clock_steps_each_instant_is_the_stores_time() -> None:
    sim = JobSimulation.start(delay=10)
    sim.wait(10).promote()
    sim.wait(3).claim().wait(4).settle(Succeeded())
    assert sim.row.queued_at == after(NOW, 10)
    assert sim.row.started_at == sim.row.first_started_at == after(NOW, 13)
    assert sim.row.ended_at == after(NOW, 17)


def test_a_lease_and_a_delay_count_from_the_newest_instant_of_the_row() -> None:
    sim = JobSimulation.start().wait(-HOUR).claim()
    assert sim.row.lease_until == after(NOW, LEASE)
    sim.settle(Snoozed(delay=5))
    assert sim.row.due_at == after(NOW, 5)


@pytest.mark.parametrize("state", State)
def test_ended_at_is_set_exactly_in_final_states(state: State) -> None:
    assert (reach(state).row.ended_at is not None) == (state in FINAL)


def test_queued_at_is_null_while_created() -> None:
    assert JobSimulation.start(hold=True).row.queued_at is None
    assert JobSimulation.start(delay=5).row.queued_at is None


def test_a_job_canceled_while_created_was_never_queued() -> None:
    sim = JobSimulation.start(hold=True)
    sim.wait(1).cancel()
    assert sim.row.queued_at is None
    assert sim.row.ended_at == after(NOW, 1)


def test_a_requeued_job_clears_started_at_and_keeps_first_started_at() -> None:
    sim = JobSimulation.start().wait(1).claim().wait(1)
    sim.settle(Failed(failure=RETRYABLE))
    assert sim.row.started_at == after(NOW, 1)
    sim.wait(1).promote()
    assert sim.row.started_at is None
    assert sim.row.first_started_at == after(NOW, 1)
    assert sim.row.queued_at == after(NOW, 3)
    sim.wait(1).claim()
    assert sim.row.started_at == after(NOW, 4)
    assert sim.row.first_started_at == after(NOW, 1)


def test_updated_at_never_decreases() -> None:
    sim = JobSimulation.start().wait(-HOUR)
    sim.claim()
    sim.record(progress(1, 1))
    sim.cancel()
    sim.settle(Released())
    assert sim.row.updated_at == NOW


# -- claim


def test_a_claim_raises_fence_and_attempt_and_starts_the_lease() -> None:
    queued = JobSimulation.start().row
    changes = claim(queued, token=TOKEN, worker="w7", lease=12.5, now=after(NOW, 2))
    taken = replace(queued, **changes)
    assert (taken.fence, taken.attempt, taken.token, taken.worker) == (1, 1, TOKEN, "w7")
    assert taken.lease_until == after(NOW, 14.5)
    assert taken.seq == taken.started_seq == queued.seq + 1
    assert taken.trigger is Trigger.CLAIM


def test_each_claim_has_the_next_fence_and_resets_the_record_number() -> None:
    sim = JobSimulation.start().claim()
    sim.record(progress(1, 10), progress(2, 20))
    assert sim.row.last_record == 2
    sim.settle(Released())
    sim.claim("w2")
    assert (sim.row.fence, sim.row.attempt, sim.row.last_record, sim.row.worker) == (
        2,
        2,
        0,
        "w2",
    )


# -- progress


def test_progress_is_clamped_and_never_decreases_across_records() -> None:
    sim = JobSimulation.start().claim()
    sim.record(progress(1, 40), progress(2, 20), progress(3, -5))
    assert sim.row.percent == 40
    sim.record(progress(4, 400))
    assert sim.row.percent == 100
    assert [event.data["progressPct"] for event in sim.events()[3:]] == [40, 40, 40, 100]


@pytest.mark.parametrize("outcome", NON_FINAL_OUTCOMES)
def test_progress_is_kept_for_the_next_attempt(outcome: Outcome) -> None:
    sim = JobSimulation.start().claim()
    sim.settle(outcome, records=(progress(1, 60, "voice"),))
    assert (sim.row.percent, sim.row.base_percent) == (60, 60)
    assert (sim.row.stage, sim.row.base_stage) == ("voice", "voice")
    if sim.row.state is State.RETRYING:
        sim.wait(10)
        # Only a signal continues a job suspended without a timeout.
        sim.apply_decision(
            decide.transition(
                replace(sim.row, due_at=sim.now),
                sim.transition_for(Trigger.PROMOTE),
                sim.now,
                sim.past,
            )
        )
    sim.claim()
    sim.record(progress(1, 5, "script"))
    assert sim.row.percent == 60


def test_a_crash_does_not_lower_progress() -> None:
    sim = JobSimulation.start().claim()
    sim.record(progress(1, 70))
    sim.crash()
    assert sim.row.percent == sim.row.base_percent == 70


@pytest.mark.parametrize("percent", [0, 40, 100])
def test_success_means_100_percent(percent: int) -> None:
    sim = JobSimulation.start().claim()
    sim.settle(Succeeded(), records=(progress(1, percent),))
    assert sim.row.percent == 100


@pytest.mark.parametrize("outcome", [Failed(failure=TERMINAL), Aborted()])
def test_an_end_without_success_keeps_the_percent(outcome: Outcome) -> None:
    sim = JobSimulation.start().claim()
    sim.settle(outcome, records=(progress(1, 33),))
    assert sim.row.percent == 33


def test_a_stage_without_a_range_keeps_the_percent() -> None:
    sim = JobSimulation.start().claim()
    sim.record(progress(1, 30, "voice"), progress(2, None, "polish"))
    assert (sim.row.percent, sim.row.stage, sim.row.phase) == (30, "polish", "polish-phase")


# -- success and failure


def test_success_keeps_the_result_and_clears_the_error() -> None:
    sim = JobSimulation.start().fail_once()
    assert sim.row.error is not None
    sim.claim().settle(Succeeded(result=b'"ok"'))
    assert sim.row.result == b'"ok"'
    assert sim.row.error is None


def test_a_failure_has_attempt_and_instant() -> None:
    sim = JobSimulation.start().fail_once().claim().wait(5)
    sim.settle(Failed(failure=TERMINAL))
    assert sim.row.error == replace(TERMINAL, attempt=2, at=sim.now)
    assert sim.row.result is None


def test_children_are_written_only_with_success_or_suspension() -> None:
    child = request(id=OTHER)
    for outcome in (param.values[0] for param in OUTCOMES):
        sim = JobSimulation.start().claim()
        transition = replace(sim.settle_transition(outcome), children=(child,))
        expected = (child,) if isinstance(outcome, Succeeded | Suspended) else ()
        assert tuple(sim.transition(transition).children) == expected


def test_a_settled_attempt_adds_outcome_wait_time_and_run_time_to_the_rollup() -> None:
    sim = JobSimulation.start().wait(2).claim().wait(3)
    assert sim.settle(Snoozed(delay=5)).sample == RollupSample(
        State.RETRYING, 2 * SECOND, 3 * SECOND
    )
    sim.wait(5).promote()
    sim.wait(1).claim().wait(4)
    assert sim.settle(Succeeded()).sample == RollupSample(State.SUCCEEDED, SECOND, 4 * SECOND)


# -- cancel


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_an_accepted_cancel_wins_over_every_outcome(outcome: Outcome) -> None:
    sim = JobSimulation.start().claim()
    sim.cancel(by="ann", reason="wrong file")
    transition = replace(sim.settle_transition(outcome), children=(request(id=OTHER),))
    decision = sim.transition(transition)
    assert decision.result.status is Status.APPLIED
    assert decision.result.state is State.CANCELED, "the worker gets this state"
    assert sim.row.state is State.CANCELED
    assert tuple(decision.children) == ()
    assert sim.row.result is None
    assert sim.row.cancel_reason == "wrong file"
    assert sim.row.cancel_by == "ann"
    assert sim.row.retry_count == 0
    assert not decision.needs_position
    assert_valid_row(sim.row)


@pytest.mark.parametrize("cap", [1, 3])
def test_an_accepted_cancel_wins_over_a_rescue(cap: int) -> None:
    sim = JobSimulation.start(policy=Policy(crash_cap=cap)).claim()
    sim.cancel()
    decision = sim.crash()
    assert decision.result.state is State.CANCELED
    assert_valid_row(sim.row)


@pytest.mark.parametrize("cap", [1, 3])
def test_an_expired_lease_counts_as_a_crash_also_when_a_cancel_wins(cap: int) -> None:
    sim = JobSimulation.start(policy=Policy(crash_cap=cap)).claim()
    sim.cancel()
    sim.crash()
    assert sim.row.crash_count == 1


@pytest.mark.parametrize("state", [State.CREATED, State.QUEUED, State.RETRYING])
def test_cancel_of_a_waiting_job_is_final_at_once(state: State) -> None:
    sim = reach(state).wait(1)
    decision = sim.cancel(by="bob", reason="late")
    assert decision.result.state is State.CANCELED
    assert (sim.row.cancel_by, sim.row.cancel_reason) == ("bob", "late")
    assert sim.row.due_at is None
    assert sim.row.ended_at == sim.now
    assert not decision.log, "the event is derived from the row"


def test_a_cancel_of_a_running_job_is_recorded_as_an_event() -> None:
    sim = JobSimulation.start().claim()
    decision = sim.cancel(by="ann", reason="no need")
    assert decision.result.state is State.RUNNING
    (line,) = decision.log
    assert line.type == "cancel-requested"
    assert line.data == {"by": "ann", "reason": "no need"}
    assert sim.row.cancel_at == sim.now
    assert sim.row.lease_until is not None, "the attempt still holds its lease"


@pytest.mark.parametrize("state", [State.RUNNING, State.QUEUED])
def test_a_second_cancel_is_applied_and_records_no_second_event(state: State) -> None:
    sim = reach(state)
    sim.cancel(by="ann", reason="first")
    before = sim.row
    decision = sim.wait(1).cancel(by="bob", reason="second")
    assert decision.result.status is Status.APPLIED
    assert nothing_changed(decision)
    assert sim.row == before


@pytest.mark.parametrize("state", [State.SUCCEEDED, State.FAILED])
def test_a_cancel_of_a_finished_job_returns_its_final_state(state: State) -> None:
    decision = reach(state).cancel()
    assert decision.result.status is Status.CONFLICT
    assert decision.result.state is state
    assert nothing_changed(decision)


def test_a_task_that_cancels_itself_gives_the_reason() -> None:
    sim = JobSimulation.start().claim()
    sim.settle(Aborted(reason="nothing to do"))
    assert sim.row.state is State.CANCELED
    assert (sim.row.cancel_by, sim.row.cancel_reason) == (None, "nothing to do")


# -- repeats and stale writers


@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("canceled", [False, True])
def test_a_repeated_settle_is_applied_and_changes_nothing(outcome: Outcome, canceled: bool) -> None:
    sim = JobSimulation.start().claim()
    if canceled:
        sim.cancel()
    transition = sim.settle_transition(outcome, records=(progress(1, 10),))
    state = sim.transition(transition).result.state
    before = sim.row
    decision = sim.wait(100).transition(transition)
    assert decision.result.status is Status.APPLIED
    assert decision.result.state is state
    assert nothing_changed(decision)
    assert sim.row == before


@pytest.mark.parametrize("outcome", [o for o in NON_FINAL_OUTCOMES if o.id != "suspend"])
@pytest.mark.parametrize("then", ["promoted", "claimed", "settled", "canceled"])
def test_a_settle_repeated_after_later_changes_is_applied_and_changes_nothing(
    outcome: Outcome, then: str
) -> None:
    sim = JobSimulation.start().claim()
    transition = sim.settle_transition(outcome)
    sim.transition(transition)
    sim.wait(10)
    if sim.row.state is State.RETRYING:
        sim.promote()
    if then != "promoted":
        sim.claim("w2")
    if then == "settled":
        sim.settle(Succeeded())
    if then == "canceled":
        sim.settle(Snoozed(delay=1))
        sim.cancel()
    before = sim.row
    decision = sim.transition(transition)
    assert decision.result.status is Status.APPLIED
    assert nothing_changed(decision)
    assert sim.row == before


@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("again", [False, True], ids=["waiting", "claimed again"])
def test_a_settle_after_a_rescue_is_stale(outcome: Outcome, again: bool) -> None:
    sim = JobSimulation.start().claim()
    transition = sim.settle_transition(outcome)
    sim.crash()
    if again:
        sim.claim("w2")
    before = sim.row
    decision = sim.transition(transition)
    assert decision.result.status is Status.STALE
    assert nothing_changed(decision)
    assert sim.row == before


@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize(
    "wrong",
    [{"fence": 0}, {"fence": 2}, {"token": WRONG_TOKEN}, {"fence": 2, "token": WRONG_TOKEN}],
)
@pytest.mark.parametrize("settled", [False, True])
def test_a_settle_with_a_wrong_fence_or_token_is_stale(
    outcome: Outcome, wrong: dict[str, Any], settled: bool
) -> None:
    sim = JobSimulation.start().claim()
    transition = sim.settle_transition(outcome)
    if settled:
        sim.transition(transition)
    decision = sim.transition(replace(transition, **wrong))
    assert decision.result.status is Status.STALE
    assert nothing_changed(decision)


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_a_settle_without_a_token_is_stale(outcome: Outcome) -> None:
    sim = JobSimulation.start().claim()
    decision = sim.transition(replace(sim.settle_transition(outcome), token=None))
    assert decision.result.status is Status.STALE
    assert nothing_changed(decision)


@pytest.mark.parametrize("first", OUTCOMES)
@pytest.mark.parametrize("second", OUTCOMES)
@pytest.mark.parametrize("again", [False, True], ids=["waiting", "claimed again"])
def test_a_settle_that_differs_from_the_recorded_one_is_stale(
    first: Outcome, second: Outcome, again: bool
) -> None:
    sim = JobSimulation.start().claim()
    one, other = sim.settle_transition(first), sim.settle_transition(second)
    if one.trigger is other.trigger:
        return
    sim.transition(one)
    if again and not sim.row.final:
        sim.row = replace(sim.row, state=State.QUEUED, due_at=None)
        sim.claim("w2")
    decision = sim.transition(other)
    assert decision.result.status is Status.STALE
    assert nothing_changed(decision)


def test_a_rescue_of_a_past_attempt_is_stale() -> None:
    sim = JobSimulation.start().claim()
    seen = sim.transition_for(Trigger.CRASH, delay=0.0)
    sim.settle(Released())
    sim.claim("w2")
    decision = sim.wait(LEASE + 1).transition(seen)
    assert decision.result.status is Status.STALE
    assert nothing_changed(decision)


@pytest.mark.parametrize("trigger", [Trigger.CRASH, Trigger.GIVE_UP])
def test_a_rescue_does_not_end_a_lease_extended_meanwhile(trigger: Trigger) -> None:
    sim = JobSimulation.start().claim().wait(LEASE + 1)
    seen = sim.transition_for(trigger, delay=0.0, error=TERMINAL)
    sim.row = replace(sim.row, lease_until=after(sim.now, LEASE))  # the holder was only slow
    decision = sim.transition(seen)
    assert not decision.result.applied
    assert nothing_changed(decision)


def test_a_promote_read_before_a_later_attempt_is_stale() -> None:
    sim = JobSimulation.start().claim()
    sim.settle(Snoozed(delay=1))
    seen = sim.transition_for(Trigger.PROMOTE)
    sim.wait(2).promote()
    sim.claim()
    sim.settle(Snoozed(delay=1))
    decision = sim.wait(2).transition(seen)
    assert decision.result.status is Status.STALE
    assert nothing_changed(decision)


@pytest.mark.parametrize(
    ("trigger", "options"),
    [
        (Trigger.PROMOTE, {"delay": 5.0}),
        (Trigger.SUBMIT, {"hold": True}),
        (Trigger.EXPIRE, {"delay": 50.0, "expires_in": 5.0}),
    ],
)
def test_a_repeated_transition_of_a_waiting_job_is_applied(
    trigger: Trigger, options: dict[str, Any]
) -> None:
    sim = JobSimulation.start(**options).wait(6)
    assert sim.apply_trigger(trigger).result.status is Status.APPLIED
    decision = sim.apply_trigger(trigger)
    assert decision.result.status is Status.APPLIED
    assert nothing_changed(decision)


# -- waiting: promote, submit, expire


def test_a_promote_before_the_due_time_is_refused() -> None:
    sim = JobSimulation.start(delay=10).wait(9)
    decision = sim.promote()
    assert decision.result.status is Status.CONFLICT
    assert nothing_changed(decision)
    assert sim.wait(1).promote().result.state is State.QUEUED


def test_a_promoted_job_needs_a_queue_position() -> None:
    sim = JobSimulation.start(delay=10).wait(10)
    assert sim.promote().needs_position
    assert sim.row.due_at is None


def test_a_held_job_is_not_promoted_but_submitted() -> None:
    sim = JobSimulation.start(hold=True).wait(1)
    assert sim.apply_trigger(Trigger.PROMOTE).result.status is Status.CONFLICT
    decision = sim.transition(submit(sim.row.id))
    assert decision.result.state is State.QUEUED
    assert decision.needs_position
    assert not sim.row.held


def test_a_submitted_job_with_a_delay_waits_for_its_due_time() -> None:
    sim = JobSimulation.start(hold=True, delay=10)
    decision = sim.transition(submit(sim.row.id))
    assert decision.result.state is State.CREATED
    assert not sim.row.held
    assert sim.promote().result.status is Status.CONFLICT
    assert sim.wait(10).promote().result.state is State.QUEUED


def test_a_held_job_is_not_promoted_when_it_is_due() -> None:
    sim = JobSimulation.start(hold=True, delay=10).wait(11)
    assert sim.promote().result.status is Status.CONFLICT
    assert sim.transition(submit(sim.row.id)).result.state is State.QUEUED


def test_a_job_that_was_not_held_cannot_be_submitted() -> None:
    sim = JobSimulation.start(delay=10).wait(11)
    decision = sim.transition(submit(sim.row.id))
    assert decision.result.status is Status.CONFLICT
    assert nothing_changed(decision)


@pytest.mark.parametrize("trigger", [Trigger.PROMOTE, Trigger.SUBMIT])
def test_a_job_with_open_dependencies_is_not_queued(trigger: Trigger) -> None:
    sim = JobSimulation.start(hold=trigger is Trigger.SUBMIT, delay=1).wait(2)
    sim.row = replace(sim.row, waiting_for=1)
    sim.apply_trigger(trigger)
    assert sim.row.state is State.CREATED


@pytest.mark.parametrize("trigger", [Trigger.PROMOTE, Trigger.EXPIRE])
@pytest.mark.parametrize("hold", [False, True])
def test_a_created_job_past_its_expiry_fails_as_expired(trigger: Trigger, hold: bool) -> None:
    sim = JobSimulation.start(delay=10, expires_in=5, hold=hold).wait(5)
    decision = sim.apply_trigger(trigger)
    assert decision.result.state is State.FAILED
    assert sim.row.trigger is Trigger.EXPIRE
    error = sim.row.error
    assert error is not None
    assert (error.code, error.kind, error.at) == ("expired", ErrorKind.TERMINAL, sim.now)
    assert_valid_row(sim.row)


def test_a_queued_job_expires_at_its_instant_and_not_before() -> None:
    sim = JobSimulation.start(expires_in=5).wait(4.999999)
    assert sim.apply_trigger(Trigger.EXPIRE).result.status is Status.CONFLICT
    assert sim.wait(0.000001).apply_trigger(Trigger.EXPIRE).result.state is State.FAILED


def test_a_job_that_has_started_once_does_not_expire() -> None:
    sim = JobSimulation.start(expires_in=5).claim()
    sim.settle(Released())
    decision = sim.wait(10).apply_trigger(Trigger.EXPIRE)
    assert decision.result.status is Status.CONFLICT
    assert nothing_changed(decision)


def test_a_repeated_promote_of_an_expired_job_is_applied() -> None:
    sim = JobSimulation.start(delay=10, expires_in=5).wait(6)
    seen = sim.transition_for(Trigger.PROMOTE)
    sim.transition(seen)
    decision = sim.transition(seen)
    assert decision.result.status is Status.APPLIED
    assert decision.result.state is State.FAILED
    assert nothing_changed(decision)


# -- records


def test_records_get_the_next_event_numbers() -> None:
    sim = JobSimulation.start().claim()
    decision = sim.record(
        Record(n=1, type=EventType.LOG, body=b'"a"'),
        Record(n=4, type=EventType.WARNING, body=b'"b"'),
        progress(9, 10),
    )
    assert [line.seq for line in decision.log] == [4, 5, 6]
    assert [line.n for line in decision.log] == [1, 4, 9]
    assert {line.fence for line in decision.log} == {1}
    assert (sim.row.seq, sim.row.last_record) == (6, 9)


def test_a_repeated_record_is_dropped() -> None:
    sim = JobSimulation.start().claim()
    records = (progress(1, 10), progress(2, 20))
    sim.record(*records)
    before = sim.row
    decision = sim.wait(1).record(*records)
    assert decision.result.status is Status.APPLIED
    assert nothing_changed(decision)
    assert sim.row == before


def test_of_a_partly_repeated_batch_only_the_new_part_is_kept() -> None:
    sim = JobSimulation.start().claim()
    sim.record(progress(1, 10), progress(2, 20))
    decision = sim.record(progress(2, 20), progress(3, 30), progress(3, 30))
    assert [(line.seq, line.n) for line in decision.log] == [(6, 3)]


def test_a_settle_drops_the_records_that_were_stored_already() -> None:
    sim = JobSimulation.start().claim()
    sim.record(progress(1, 10))
    decision = sim.settle(Succeeded(), records=(progress(1, 10), progress(2, 90)))
    assert [line.n for line in decision.log] == [2]
    assert sim.row.seq == 6


def test_record_numbers_restart_with_each_fence() -> None:
    sim = JobSimulation.start().claim()
    sim.record(progress(1, 10))
    sim.settle(Released())
    decision = sim.claim().record(progress(1, 50))
    assert len(decision.log) == 1
    assert sim.row.percent == 50


@pytest.mark.parametrize("records", [(), (progress(1, 10),)])
@pytest.mark.parametrize("wrong", ["fence", "token", "queued", "succeeded"])
def test_a_stale_record_changes_nothing(records: tuple[Record, ...], wrong: str) -> None:
    sim = JobSimulation.start().claim()
    fence, held = sim.row.fence, token(1)
    match wrong:
        case "fence":
            fence += 1
        case "token":
            held = WRONG_TOKEN
        case "queued":
            sim.settle(Released())
        case "succeeded":
            sim.settle(Succeeded())
    decision = record(sim.row, fence, held, records, sim.now)
    assert decision.result.status is Status.STALE
    assert nothing_changed(decision)


def test_records_are_accepted_after_a_cancel_request() -> None:
    sim = JobSimulation.start().claim()
    sim.cancel()
    assert sim.record(progress(1, 10)).result.status is Status.APPLIED


def test_a_checkpoint_is_kept_and_names_the_last_step() -> None:
    sim = JobSimulation.start().fail_once().claim()
    sim.record(
        Record(n=1, type=EventType.STEP_STATUS, step="voice", status="done", checkpoint=b"1"),
        Record(n=2, type=EventType.STEP_STATUS, step="visuals", status="running"),
    )
    assert sim.row.last_step == "voice"
    (kept,) = sim.checkpoints
    assert (kept.step, kept.value, kept.attempt, kept.at) == ("voice", b"1", 2, sim.now)
    sim.settle(
        Failed(failure=TERMINAL),
        records=(Record(n=3, type=EventType.STEP_STATUS, step="visuals", checkpoint=b"2"),),
    )
    assert [mark.step for mark in sim.checkpoints] == ["voice", "visuals"]
    assert sim.row.last_step == "visuals"
    assert sim.row.can_resume


def test_a_repeated_checkpoint_is_kept_once() -> None:
    sim = JobSimulation.start().claim()
    record = Record(n=1, type=EventType.STEP_STATUS, step="voice", checkpoint=b"1")
    sim.record(record)
    assert not sim.record(record).checkpoints
    assert len(sim.checkpoints) == 1


def test_a_transition_of_a_waiting_job_writes_no_records() -> None:
    sim = JobSimulation.start(delay=1, policy=Policy(backoff=fixed(0))).wait(2)
    transition = Transition(
        job_id=sim.row.id, fence=0, trigger=Trigger.PROMOTE, records=(progress(1, 50),)
    )
    assert not sim.transition(transition).log
    assert sim.row.percent == 0
