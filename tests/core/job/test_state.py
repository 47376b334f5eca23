"""Every pair of state and trigger, compared with the written table of transitions."""

from __future__ import annotations

from itertools import product

import pytest
from tests.core.factories import LEASE, RETRYABLE, TERMINAL, assert_valid_row, nothing_changed
from tests.core.job_simulation import JobSimulation, reach

from windlass.core.decisions import outcome as outcomes
from windlass.core.decisions.transition import Status, submit
from windlass.core.job.retry_policy import Policy
from windlass.core.job.state import ACTIVE, FINAL, MOVES, WAITING, State, Trigger, move

TABLE = {
    ("created", "submit"): "queued",
    ("created", "promote"): "queued",
    ("created", "cancel"): "canceled",
    ("created", "parent-cancel"): "canceled",
    ("created", "parent-fail"): "failed",
    ("created", "expire"): "failed",
    ("queued", "cancel"): "canceled",
    ("queued", "parent-cancel"): "canceled",
    ("queued", "parent-fail"): "failed",
    ("queued", "expire"): "failed",
    ("queued", "claim"): "running",
    ("running", "succeed"): "succeeded",
    ("running", "retry"): "retrying",
    ("running", "crash"): "retrying",
    ("running", "release"): "retrying",
    ("running", "snooze"): "retrying",
    ("running", "suspend"): "retrying",
    ("running", "fail"): "failed",
    ("running", "give-up"): "failed",
    ("running", "abort"): "canceled",
    ("running", "cancel"): "running",  # recorded; the attempt's end makes it final
    ("retrying", "promote"): "queued",
    ("retrying", "cancel"): "canceled",
}
PAIRS = list(product(State, Trigger))
# Transitions of other functions than `decide`: claim, and cancel of a running job.
SEPARATE_FUNCTIONS = {("queued", "claim"), ("running", "cancel")}
# The row's last trigger can only be the requested one, so the transition counts as a repeat.
REPEATS = {("succeeded", "succeed"), ("running", "claim")}


def created(trigger: Trigger) -> JobSimulation:
    match trigger:
        case Trigger.SUBMIT | Trigger.ENQUEUE:
            sim = JobSimulation.start(hold=True)
            if trigger is Trigger.ENQUEUE:
                # The last trigger must differ, or the transition counts as a repeat.
                sim = JobSimulation.start(hold=True, delay=10)
                sim.transition(submit(sim.row.id))
            return sim
        case Trigger.PROMOTE:
            return JobSimulation.start(delay=10).wait(11)
        case Trigger.EXPIRE:
            return JobSimulation.start(delay=10, expires_in=5).wait(6)
        case _:
            return JobSimulation.start(delay=10)


def queued(trigger: Trigger) -> JobSimulation:
    if trigger is Trigger.ENQUEUE:
        sim = JobSimulation.start(hold=True)
        sim.transition(submit(sim.row.id))
        return sim
    return (
        JobSimulation.start(expires_in=5).wait(6)
        if trigger is Trigger.EXPIRE
        else JobSimulation.start()
    )


def running(trigger: Trigger) -> JobSimulation:
    sim = JobSimulation.start().claim()
    return sim.wait(LEASE + 1) if trigger in {Trigger.CRASH, Trigger.GIVE_UP} else sim


def retrying(trigger: Trigger) -> JobSimulation:
    sim = JobSimulation.start().claim()
    snooze = trigger is Trigger.RETRY
    sim.settle(outcomes.Snoozed(delay=1) if snooze else outcomes.Failed(failure=RETRYABLE))
    return sim.wait(2)


def failed(trigger: Trigger) -> JobSimulation:
    sim = JobSimulation.start(policy=Policy(crash_cap=1)).claim()
    if trigger is Trigger.FAIL:
        sim.crash()
    else:
        sim.settle(outcomes.Failed(failure=TERMINAL))
    return sim


def canceled(trigger: Trigger) -> JobSimulation:
    sim = JobSimulation.start().claim()
    if trigger is Trigger.ABORT:
        sim.cancel()
        sim.settle(outcomes.Released())
    else:
        sim.settle(outcomes.Aborted())
    return sim


SIMULATIONS = {
    State.CREATED: created,
    State.QUEUED: queued,
    State.RUNNING: running,
    State.RETRYING: retrying,
    State.SUCCEEDED: lambda _: reach(State.SUCCEEDED),
    State.FAILED: failed,
    State.CANCELED: canceled,
}


def ready(state: State, trigger: Trigger) -> JobSimulation:
    """Return a job in this state that meets the other conditions of the trigger."""
    sim = SIMULATIONS[state](trigger)
    assert sim.row.state is state
    return sim


def transition_values(trigger: Trigger) -> dict[str, object]:
    """Return the values of a transition with this trigger."""
    if trigger in {Trigger.RETRY, Trigger.CRASH, Trigger.SNOOZE}:
        return {"delay": 5.0, "error": None if trigger is Trigger.SNOOZE else RETRYABLE}
    if trigger in {Trigger.FAIL, Trigger.GIVE_UP, Trigger.PARENT_FAIL}:
        return {"error": TERMINAL}
    return {}


def test_there_are_seven_states_and_the_last_three_are_final() -> None:
    names = ["created", "queued", "running", "retrying", "succeeded", "failed", "canceled"]
    assert [state.value for state in State] == names
    assert [state.value for state in State if state.final] == ["succeeded", "failed", "canceled"]


def test_active_waiting_and_final_split_the_states() -> None:
    assert frozenset(State) == ACTIVE | FINAL
    assert not ACTIVE & FINAL
    assert frozenset({State.CREATED, State.QUEUED, State.RETRYING}) == WAITING


def test_moves_equals_the_written_table() -> None:
    written = {(s.value, t.value): to.value for (s, t), to in MOVES.items()}
    assert written == TABLE


@pytest.mark.parametrize(("state", "trigger"), PAIRS)
def test_every_transition_follows_the_table(state: State, trigger: Trigger) -> None:
    to = TABLE.get((state.value, trigger.value))
    assert move(state, trigger) == (None if to is None else State(to))


def test_only_the_holder_of_a_lease_settles() -> None:
    settling = {"succeed", "retry", "fail", "release", "snooze", "suspend", "abort"}
    assert {trigger.value for trigger in Trigger if trigger.settles} == settling


ALLOWED = [
    pair for pair in PAIRS if (pair[0].value, pair[1].value) in set(TABLE) - SEPARATE_FUNCTIONS
]
REFUSED = [pair for pair in PAIRS if (pair[0].value, pair[1].value) not in set(TABLE) | REPEATS]


@pytest.mark.parametrize(("state", "trigger"), ALLOWED)
def test_decide_allows_every_transition_of_the_table(state: State, trigger: Trigger) -> None:
    sim = ready(state, trigger)
    decision = sim.apply_trigger(trigger, **transition_values(trigger))
    expected = State(TABLE[state.value, trigger.value])
    assert decision.result.status is Status.APPLIED
    assert decision.result.state is expected
    assert sim.row.state is expected
    assert_valid_row(sim.row)


@pytest.mark.parametrize(("state", "trigger"), REFUSED)
def test_every_other_transition_is_refused_without_changes(state: State, trigger: Trigger) -> None:
    sim = ready(state, trigger)
    before = sim.row
    decision = sim.apply_trigger(trigger, **transition_values(trigger))
    expected = Status.STALE if trigger.settles else Status.CONFLICT
    assert decision.result.status is expected
    assert decision.result.state is state
    assert nothing_changed(decision)
    assert sim.row == before


@pytest.mark.parametrize(("state", "trigger"), sorted(REPEATS))
def test_a_repeated_transition_changes_nothing(state: str, trigger: str) -> None:
    sim = ready(State(state), Trigger(trigger))
    assert nothing_changed(sim.apply_trigger(Trigger(trigger)))


def test_decide_does_not_claim() -> None:
    sim = JobSimulation.start()
    decision = sim.apply_trigger(Trigger.CLAIM)
    assert decision.result.status is Status.CONFLICT
    assert nothing_changed(decision)


def test_decide_does_not_end_a_running_job_by_a_cancel() -> None:
    sim = JobSimulation.start().claim()
    sim.apply_trigger(Trigger.CANCEL)
    assert sim.row.state is State.RUNNING
    assert_valid_row(sim.row)


def test_a_queued_job_is_claimed() -> None:
    sim = JobSimulation.start().claim()
    assert sim.row.state is State.RUNNING
    assert_valid_row(sim.row)


@pytest.mark.parametrize("state", State)
def test_cancel_follows_the_table(state: State) -> None:
    sim = reach(state)
    before = sim.row
    decision = sim.cancel()
    match state:
        case State.CREATED | State.QUEUED | State.RETRYING:
            assert (decision.result.status, sim.row.state) == (Status.APPLIED, State.CANCELED)
        case State.RUNNING:
            assert (decision.result.status, sim.row.state) == (Status.APPLIED, State.RUNNING)
            assert sim.row.cancel_requested
        case State.CANCELED:
            assert decision.result.status is Status.APPLIED
            assert sim.row == before
        case State.SUCCEEDED | State.FAILED:
            assert decision.result.status is Status.CONFLICT
            assert decision.result.state is state
            assert sim.row == before
    assert_valid_row(sim.row)
