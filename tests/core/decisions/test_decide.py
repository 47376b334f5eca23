"""What becomes of a job: instants, progress, cancel, repeats, stale writers, records."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from tests.core.factories import (
    BEGINNINGS,
    LEASE,
    NOW,
    OTHER,
    RETRYABLE,
    STEPS,
    TERMINAL,
    TOKEN,
    WRONG_TOKEN,
    Life,
    RandomLife,
    assert_legal,
    nothing_changed,
    progress,
    reach,
    request,
    row,
    token,
)

from windlass.core.clock import SECOND, after
from windlass.core.decisions.decide import claim, decide, record
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
GOING_ON: list[Any] = OUTCOMES[2:7]
HOUR = 3600.0

# -- time


@settings(max_examples=120, deadline=None)
@given(BEGINNINGS, STEPS)
def test_every_row_of_every_history_is_valid_whatever_the_clock_does(
    beginning: dict[str, Any], steps: list[tuple[float, Any]]
) -> None:
    life = RandomLife(row(**beginning))
    assert_legal(life.row)
    for step in steps:
        before = life.row
        life.step(*step)
        now = life.row
        assert_legal(now)
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
            assert now == before, "final is final"


def test_created_queued_started_and_ended_stay_in_order_when_the_clock_steps_back() -> None:
    life = Life.begin(delay=10).wait(11)
    life.promote()
    life.wait(-HOUR).claim().wait(-HOUR)
    life.record(progress(1, 10))
    life.wait(-HOUR).settle(Succeeded())
    done = life.row
    assert done.created_at == NOW
    assert done.queued_at == done.started_at == done.ended_at == done.updated_at
    assert done.queued_at == after(NOW, 11)


def test_each_instant_is_the_stores_time_when_the_clock_behaves() -> None:
    life = Life.begin(delay=10)
    life.wait(10).promote()
    life.wait(3).claim().wait(4).settle(Succeeded())
    assert life.row.queued_at == after(NOW, 10)
    assert life.row.started_at == life.row.first_started_at == after(NOW, 13)
    assert life.row.ended_at == after(NOW, 17)


def test_a_lease_and_a_delay_are_counted_from_the_rows_own_time() -> None:
    life = Life.begin().wait(-HOUR).claim()
    assert life.row.lease_until == after(NOW, LEASE)
    life.settle(Snoozed(delay=5))
    assert life.row.due_at == after(NOW, 5)


@pytest.mark.parametrize("state", State)
def test_ended_at_is_there_exactly_in_final_states(state: State) -> None:
    assert (reach(state).row.ended_at is not None) == (state in FINAL)


def test_queued_at_is_null_while_created() -> None:
    assert Life.begin(hold=True).row.queued_at is None
    assert Life.begin(delay=5).row.queued_at is None


def test_a_job_canceled_while_created_was_never_queued() -> None:
    life = Life.begin(hold=True)
    life.wait(1).cancel()
    assert life.row.queued_at is None
    assert life.row.ended_at == after(NOW, 1)


def test_a_requeued_job_clears_started_at_and_keeps_first_started_at() -> None:
    life = Life.begin().wait(1).claim().wait(1)
    life.settle(Failed(failure=RETRYABLE))
    assert life.row.started_at == after(NOW, 1)
    life.wait(1).promote()
    assert life.row.started_at is None
    assert life.row.first_started_at == after(NOW, 1)
    assert life.row.queued_at == after(NOW, 3)
    life.wait(1).claim()
    assert life.row.started_at == after(NOW, 4)
    assert life.row.first_started_at == after(NOW, 1)


def test_updated_at_never_falls() -> None:
    life = Life.begin().wait(-HOUR)
    life.claim()
    life.record(progress(1, 1))
    life.cancel()
    life.settle(Released())
    assert life.row.updated_at == NOW


# -- claim


def test_a_claim_raises_fence_and_attempt_and_starts_the_lease() -> None:
    queued = Life.begin().row
    changes = claim(queued, token=TOKEN, worker="w7", lease=12.5, now=after(NOW, 2))
    taken = replace(queued, **changes)
    assert (taken.fence, taken.attempt, taken.token, taken.worker) == (1, 1, TOKEN, "w7")
    assert taken.lease_until == after(NOW, 14.5)
    assert taken.seq == taken.started_seq == queued.seq + 1
    assert taken.trigger is Trigger.CLAIM


def test_each_claim_has_the_next_fence_and_resets_the_record_number() -> None:
    life = Life.begin().claim()
    life.record(progress(1, 10), progress(2, 20))
    assert life.row.last_record == 2
    life.settle(Released())
    life.claim("w2")
    assert (life.row.fence, life.row.attempt, life.row.last_record, life.row.worker) == (
        2,
        2,
        0,
        "w2",
    )


# -- progress


def test_progress_is_clamped_and_never_falls_across_records() -> None:
    life = Life.begin().claim()
    life.record(progress(1, 40), progress(2, 20), progress(3, -5))
    assert life.row.percent == 40
    life.record(progress(4, 400))
    assert life.row.percent == 100
    assert [event.data["progressPct"] for event in life.events()[3:]] == [40, 40, 40, 100]


@pytest.mark.parametrize("outcome", GOING_ON)
def test_progress_outlives_the_attempt_that_made_it(outcome: Outcome) -> None:
    life = Life.begin().claim()
    life.settle(outcome, records=(progress(1, 60, "voice"),))
    assert (life.row.percent, life.row.base_percent) == (60, 60)
    assert (life.row.stage, life.row.base_stage) == ("voice", "voice")
    if life.row.state is State.RETRYING:
        life.wait(10)
        # Nothing but a signal wakes a job suspended for good.
        life.take(
            decide(
                replace(life.row, due_at=life.now),
                life.asking(Trigger.PROMOTE),
                life.now,
                life.past,
            )
        )
    life.claim()
    life.record(progress(1, 5, "script"))
    assert life.row.percent == 60


def test_a_crash_does_not_lower_progress() -> None:
    life = Life.begin().claim()
    life.record(progress(1, 70))
    life.crash()
    assert life.row.percent == life.row.base_percent == 70


@pytest.mark.parametrize("percent", [0, 40, 100])
def test_success_means_100_percent(percent: int) -> None:
    life = Life.begin().claim()
    life.settle(Succeeded(), records=(progress(1, percent),))
    assert life.row.percent == 100


@pytest.mark.parametrize("outcome", [Failed(failure=TERMINAL), Aborted()])
def test_an_end_without_success_keeps_the_percent_it_had(outcome: Outcome) -> None:
    life = Life.begin().claim()
    life.settle(outcome, records=(progress(1, 33),))
    assert life.row.percent == 33


def test_a_stage_without_a_range_moves_the_stage_and_not_the_percent() -> None:
    life = Life.begin().claim()
    life.record(progress(1, 30, "voice"), progress(2, None, "polish"))
    assert (life.row.percent, life.row.stage, life.row.phase) == (30, "polish", "polish-phase")


# -- success and failure


def test_success_keeps_the_result_and_clears_the_error() -> None:
    life = Life.begin().fail_once()
    assert life.row.error is not None
    life.claim().settle(Succeeded(result=b'"ok"'))
    assert life.row.result == b'"ok"'
    assert life.row.error is None


def test_a_failure_has_its_attempt_and_instant() -> None:
    life = Life.begin().fail_once().claim().wait(5)
    life.settle(Failed(failure=TERMINAL))
    assert life.row.error == replace(TERMINAL, attempt=2, at=life.now)
    assert life.row.result is None


def test_children_are_written_only_with_success_or_suspension() -> None:
    child = request(id=OTHER)
    for outcome in (param.values[0] for param in OUTCOMES):
        life = Life.begin().claim()
        transition = replace(life.settling(outcome), children=(child,))
        expected = (child,) if isinstance(outcome, Succeeded | Suspended) else ()
        assert tuple(life.transition(transition).children) == expected


def test_a_settled_attempt_is_tallied_by_how_it_ended_how_long_it_waited_and_ran() -> None:
    life = Life.begin().wait(2).claim().wait(3)
    assert life.settle(Snoozed(delay=5)).sample == RollupSample(
        State.RETRYING, 2 * SECOND, 3 * SECOND
    )
    life.wait(5).promote()
    life.wait(1).claim().wait(4)
    assert life.settle(Succeeded()).sample == RollupSample(State.SUCCEEDED, SECOND, 4 * SECOND)


# -- cancel


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_an_accepted_cancel_wins_over_every_outcome(outcome: Outcome) -> None:
    life = Life.begin().claim()
    life.cancel(by="ann", reason="wrong file")
    transition = replace(life.settling(outcome), children=(request(id=OTHER),))
    decision = life.transition(transition)
    assert decision.result.status is Status.APPLIED
    assert decision.result.state is State.CANCELED, "the worker gets this state"
    assert life.row.state is State.CANCELED
    assert tuple(decision.children) == ()
    assert life.row.result is None
    assert life.row.cancel_reason == "wrong file"
    assert life.row.cancel_by == "ann"
    assert life.row.retry_count == 0
    assert not decision.needs_position
    assert_legal(life.row)


@pytest.mark.parametrize("cap", [1, 3])
def test_an_accepted_cancel_wins_over_a_rescue(cap: int) -> None:
    life = Life.begin(policy=Policy(crash_cap=cap)).claim()
    life.cancel()
    decision = life.crash()
    assert decision.result.state is State.CANCELED
    assert_legal(life.row)


@pytest.mark.parametrize("cap", [1, 3])
def test_an_expired_lease_counts_as_a_crash_also_when_a_cancel_wins(cap: int) -> None:
    life = Life.begin(policy=Policy(crash_cap=cap)).claim()
    life.cancel()
    life.crash()
    assert life.row.crash_count == 1


@pytest.mark.parametrize("state", [State.CREATED, State.QUEUED, State.RETRYING])
def test_cancel_of_a_waiting_job_is_final_at_once(state: State) -> None:
    life = reach(state).wait(1)
    decision = life.cancel(by="bob", reason="late")
    assert decision.result.state is State.CANCELED
    assert (life.row.cancel_by, life.row.cancel_reason) == ("bob", "late")
    assert life.row.due_at is None
    assert life.row.ended_at == life.now
    assert not decision.log, "the row itself tells it"


def test_cancel_of_a_running_job_is_recorded_with_an_event_of_its_own() -> None:
    life = Life.begin().claim()
    decision = life.cancel(by="ann", reason="no need")
    assert decision.result.state is State.RUNNING
    (line,) = decision.log
    assert line.type == "cancel-requested"
    assert line.facts == {"by": "ann", "reason": "no need"}
    assert life.row.cancel_at == life.now
    assert life.row.lease_until is not None, "the attempt still holds its lease"


@pytest.mark.parametrize("state", [State.RUNNING, State.QUEUED])
def test_a_second_cancel_is_applied_and_records_no_second_event(state: State) -> None:
    life = reach(state)
    life.cancel(by="ann", reason="first")
    before = life.row
    decision = life.wait(1).cancel(by="bob", reason="second")
    assert decision.result.status is Status.APPLIED
    assert nothing_changed(decision)
    assert life.row == before


@pytest.mark.parametrize("state", [State.SUCCEEDED, State.FAILED])
def test_a_cancel_of_a_finished_job_returns_its_final_state(state: State) -> None:
    decision = reach(state).cancel()
    assert decision.result.status is Status.CONFLICT
    assert decision.result.state is state
    assert nothing_changed(decision)


def test_a_task_that_cancels_itself_gives_its_own_reason() -> None:
    life = Life.begin().claim()
    life.settle(Aborted(reason="nothing to do"))
    assert life.row.state is State.CANCELED
    assert (life.row.cancel_by, life.row.cancel_reason) == (None, "nothing to do")


# -- repeats and stale writers


@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("canceled", [False, True])
def test_a_repeated_settle_is_applied_and_changes_nothing(outcome: Outcome, canceled: bool) -> None:
    life = Life.begin().claim()
    if canceled:
        life.cancel()
    transition = life.settling(outcome, records=(progress(1, 10),))
    state = life.transition(transition).result.state
    before = life.row
    decision = life.wait(100).transition(transition)
    assert decision.result.status is Status.APPLIED
    assert decision.result.state is state
    assert nothing_changed(decision)
    assert life.row == before


@pytest.mark.parametrize("outcome", [o for o in GOING_ON if o.id != "suspend"])
@pytest.mark.parametrize("then", ["promoted", "claimed", "settled", "canceled"])
def test_a_settle_repeated_after_the_job_went_on_is_applied_and_changes_nothing(
    outcome: Outcome, then: str
) -> None:
    life = Life.begin().claim()
    transition = life.settling(outcome)
    life.transition(transition)
    life.wait(10)
    if life.row.state is State.RETRYING:
        life.promote()
    if then != "promoted":
        life.claim("w2")
    if then == "settled":
        life.settle(Succeeded())
    if then == "canceled":
        life.settle(Snoozed(delay=1))
        life.cancel()
    before = life.row
    decision = life.transition(transition)
    assert decision.result.status is Status.APPLIED
    assert nothing_changed(decision)
    assert life.row == before


@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("again", [False, True], ids=["waiting", "claimed again"])
def test_a_settle_after_a_rescue_is_stale(outcome: Outcome, again: bool) -> None:
    life = Life.begin().claim()
    transition = life.settling(outcome)
    life.crash()
    if again:
        life.claim("w2")
    before = life.row
    decision = life.transition(transition)
    assert decision.result.status is Status.STALE
    assert nothing_changed(decision)
    assert life.row == before


@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize(
    "wrong",
    [{"fence": 0}, {"fence": 2}, {"token": WRONG_TOKEN}, {"fence": 2, "token": WRONG_TOKEN}],
)
@pytest.mark.parametrize("settled", [False, True])
def test_a_settle_with_a_wrong_fence_or_token_is_stale(
    outcome: Outcome, wrong: dict[str, Any], settled: bool
) -> None:
    life = Life.begin().claim()
    transition = life.settling(outcome)
    if settled:
        life.transition(transition)
    decision = life.transition(replace(transition, **wrong))
    assert decision.result.status is Status.STALE
    assert nothing_changed(decision)


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_a_settle_without_a_token_is_stale(outcome: Outcome) -> None:
    life = Life.begin().claim()
    decision = life.transition(replace(life.settling(outcome), token=None))
    assert decision.result.status is Status.STALE
    assert nothing_changed(decision)


@pytest.mark.parametrize("first", OUTCOMES)
@pytest.mark.parametrize("second", OUTCOMES)
@pytest.mark.parametrize("again", [False, True], ids=["at rest", "claimed again"])
def test_a_settle_that_differs_from_the_recorded_one_is_stale(
    first: Outcome, second: Outcome, again: bool
) -> None:
    life = Life.begin().claim()
    one, other = life.settling(first), life.settling(second)
    if one.trigger is other.trigger:
        return
    life.transition(one)
    if again and not life.row.final:
        life.row = replace(life.row, state=State.QUEUED, due_at=None)
        life.claim("w2")
    decision = life.transition(other)
    assert decision.result.status is Status.STALE
    assert nothing_changed(decision)


def test_a_rescue_of_an_attempt_that_is_over_is_stale() -> None:
    life = Life.begin().claim()
    seen = life.asking(Trigger.CRASH, delay=0.0)
    life.settle(Released())
    life.claim("w2")
    decision = life.wait(LEASE + 1).transition(seen)
    assert decision.result.status is Status.STALE
    assert nothing_changed(decision)


@pytest.mark.parametrize("trigger", [Trigger.CRASH, Trigger.GIVE_UP])
def test_a_rescue_does_not_end_a_lease_extended_meanwhile(trigger: Trigger) -> None:
    life = Life.begin().claim().wait(LEASE + 1)
    seen = life.asking(trigger, delay=0.0, error=TERMINAL)
    life.row = replace(life.row, lease_until=after(life.now, LEASE))  # the holder was just slow
    decision = life.transition(seen)
    assert not decision.result.applied
    assert nothing_changed(decision)


def test_a_promote_read_before_a_later_attempt_is_stale() -> None:
    life = Life.begin().claim()
    life.settle(Snoozed(delay=1))
    seen = life.asking(Trigger.PROMOTE)
    life.wait(2).promote()
    life.claim()
    life.settle(Snoozed(delay=1))
    decision = life.wait(2).transition(seen)
    assert decision.result.status is Status.STALE
    assert nothing_changed(decision)


@pytest.mark.parametrize(
    ("trigger", "beginning"),
    [
        (Trigger.PROMOTE, {"delay": 5.0}),
        (Trigger.SUBMIT, {"hold": True}),
        (Trigger.EXPIRE, {"delay": 50.0, "expires_in": 5.0}),
    ],
)
def test_a_repeated_transition_of_a_waiting_job_is_applied(
    trigger: Trigger, beginning: dict[str, Any]
) -> None:
    life = Life.begin(**beginning).wait(6)
    assert life.ask(trigger).result.status is Status.APPLIED
    decision = life.ask(trigger)
    assert decision.result.status is Status.APPLIED
    assert nothing_changed(decision)


# -- waiting: promote, submit, expire


def test_a_promote_before_the_time_is_refused() -> None:
    life = Life.begin(delay=10).wait(9)
    decision = life.promote()
    assert decision.result.status is Status.CONFLICT
    assert nothing_changed(decision)
    assert life.wait(1).promote().result.state is State.QUEUED


def test_a_promoted_job_needs_a_queue_position() -> None:
    life = Life.begin(delay=10).wait(10)
    assert life.promote().needs_position
    assert life.row.due_at is None


def test_a_held_job_is_not_promoted_but_submitted() -> None:
    life = Life.begin(hold=True).wait(1)
    assert life.ask(Trigger.PROMOTE).result.status is Status.CONFLICT
    decision = life.transition(submit(life.row.id))
    assert decision.result.state is State.QUEUED
    assert decision.needs_position
    assert not life.row.held


def test_a_held_job_with_a_later_time_waits_for_it_after_its_submit() -> None:
    life = Life.begin(hold=True, delay=10)
    decision = life.transition(submit(life.row.id))
    assert decision.result.state is State.CREATED
    assert not life.row.held
    assert life.promote().result.status is Status.CONFLICT
    assert life.wait(10).promote().result.state is State.QUEUED


def test_a_held_job_is_not_promoted_when_it_is_due() -> None:
    life = Life.begin(hold=True, delay=10).wait(11)
    assert life.promote().result.status is Status.CONFLICT
    assert life.transition(submit(life.row.id)).result.state is State.QUEUED


def test_a_job_that_was_not_held_cannot_be_submitted() -> None:
    life = Life.begin(delay=10).wait(11)
    decision = life.transition(submit(life.row.id))
    assert decision.result.status is Status.CONFLICT
    assert nothing_changed(decision)


@pytest.mark.parametrize("trigger", [Trigger.PROMOTE, Trigger.SUBMIT])
def test_a_job_with_open_dependencies_is_not_queued(trigger: Trigger) -> None:
    life = Life.begin(hold=trigger is Trigger.SUBMIT, delay=1).wait(2)
    life.row = replace(life.row, waiting_for=1)
    life.ask(trigger)
    assert life.row.state is State.CREATED


@pytest.mark.parametrize("trigger", [Trigger.PROMOTE, Trigger.EXPIRE])
@pytest.mark.parametrize("hold", [False, True])
def test_a_created_job_past_its_expiry_fails_as_expired(trigger: Trigger, hold: bool) -> None:
    life = Life.begin(delay=10, expires_in=5, hold=hold).wait(5)
    decision = life.ask(trigger)
    assert decision.result.state is State.FAILED
    assert life.row.trigger is Trigger.EXPIRE
    error = life.row.error
    assert error is not None
    assert (error.code, error.kind, error.at) == ("expired", ErrorKind.TERMINAL, life.now)
    assert_legal(life.row)


def test_a_queued_job_expires_at_its_instant_and_not_before() -> None:
    life = Life.begin(expires_in=5).wait(4.999999)
    assert life.ask(Trigger.EXPIRE).result.status is Status.CONFLICT
    assert life.wait(0.000001).ask(Trigger.EXPIRE).result.state is State.FAILED


def test_a_job_that_has_started_once_does_not_expire() -> None:
    life = Life.begin(expires_in=5).claim()
    life.settle(Released())
    decision = life.wait(10).ask(Trigger.EXPIRE)
    assert decision.result.status is Status.CONFLICT
    assert nothing_changed(decision)


def test_a_promote_repeated_after_it_found_the_job_expired_is_applied() -> None:
    life = Life.begin(delay=10, expires_in=5).wait(6)
    seen = life.asking(Trigger.PROMOTE)
    life.transition(seen)
    decision = life.transition(seen)
    assert decision.result.status is Status.APPLIED
    assert decision.result.state is State.FAILED
    assert nothing_changed(decision)


# -- records


def test_records_are_numbered_densely_after_what_came_before() -> None:
    life = Life.begin().claim()
    decision = life.record(
        Record(n=1, type=EventType.LOG, body=b'"a"'),
        Record(n=4, type=EventType.WARNING, body=b'"b"'),
        progress(9, 10),
    )
    assert [line.seq for line in decision.log] == [4, 5, 6]
    assert [line.n for line in decision.log] == [1, 4, 9]
    assert {line.fence for line in decision.log} == {1}
    assert (life.row.seq, life.row.last_record) == (6, 9)


def test_a_repeated_record_is_dropped() -> None:
    life = Life.begin().claim()
    records = (progress(1, 10), progress(2, 20))
    life.record(*records)
    before = life.row
    decision = life.wait(1).record(*records)
    assert decision.result.status is Status.APPLIED
    assert nothing_changed(decision)
    assert life.row == before


def test_of_a_partly_repeated_batch_only_the_new_part_is_kept() -> None:
    life = Life.begin().claim()
    life.record(progress(1, 10), progress(2, 20))
    decision = life.record(progress(2, 20), progress(3, 30), progress(3, 30))
    assert [(line.seq, line.n) for line in decision.log] == [(6, 3)]


def test_a_settle_drops_the_records_that_were_stored_already() -> None:
    life = Life.begin().claim()
    life.record(progress(1, 10))
    decision = life.settle(Succeeded(), records=(progress(1, 10), progress(2, 90)))
    assert [line.n for line in decision.log] == [2]
    assert life.row.seq == 6


def test_the_same_numbers_count_afresh_under_the_next_fence() -> None:
    life = Life.begin().claim()
    life.record(progress(1, 10))
    life.settle(Released())
    decision = life.claim().record(progress(1, 50))
    assert len(decision.log) == 1
    assert life.row.percent == 50


@pytest.mark.parametrize("records", [(), (progress(1, 10),)])
@pytest.mark.parametrize("wrong", ["fence", "token", "queued", "succeeded"])
def test_a_stale_record_changes_nothing(records: tuple[Record, ...], wrong: str) -> None:
    life = Life.begin().claim()
    fence, held = life.row.fence, token(1)
    match wrong:
        case "fence":
            fence += 1
        case "token":
            held = WRONG_TOKEN
        case "queued":
            life.settle(Released())
        case "succeeded":
            life.settle(Succeeded())
    decision = record(life.row, fence, held, records, life.now)
    assert decision.result.status is Status.STALE
    assert nothing_changed(decision)


def test_a_record_may_follow_an_accepted_cancel() -> None:
    life = Life.begin().claim()
    life.cancel()
    assert life.record(progress(1, 10)).result.status is Status.APPLIED


def test_a_checkpoint_is_kept_and_names_the_last_step() -> None:
    life = Life.begin().fail_once().claim()
    life.record(
        Record(n=1, type=EventType.STEP_STATUS, step="voice", status="done", checkpoint=b"1"),
        Record(n=2, type=EventType.STEP_STATUS, step="visuals", status="running"),
    )
    assert life.row.last_step == "voice"
    (kept,) = life.checkpoints
    assert (kept.step, kept.value, kept.attempt, kept.at) == ("voice", b"1", 2, life.now)
    life.settle(
        Failed(failure=TERMINAL),
        records=(Record(n=3, type=EventType.STEP_STATUS, step="visuals", checkpoint=b"2"),),
    )
    assert [mark.step for mark in life.checkpoints] == ["voice", "visuals"]
    assert life.row.last_step == "visuals"
    assert life.row.can_resume


def test_a_repeated_checkpoint_is_kept_once() -> None:
    life = Life.begin().claim()
    record = Record(n=1, type=EventType.STEP_STATUS, step="voice", checkpoint=b"1")
    life.record(record)
    assert not life.record(record).checkpoints
    assert len(life.checkpoints) == 1


def test_a_transition_of_a_waiting_job_writes_no_records() -> None:
    life = Life.begin(delay=1, policy=Policy(backoff=fixed(0))).wait(2)
    transition = Transition(
        job_id=life.row.id, fence=0, trigger=Trigger.PROMOTE, records=(progress(1, 50),)
    )
    assert not life.transition(transition).log
    assert life.row.percent == 0
