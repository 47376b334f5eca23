"""Simulation of one job, driven through the decisions of the core as a store drives it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from hypothesis import strategies as st
from tests.core.factories import LEASE, NOW, RETRYABLE, TERMINAL, no_jitter, row, token

from windlass.core.clock import SECOND, Instant
from windlass.core.decisions import decide, maintenance
from windlass.core.decisions import outcome as outcomes
from windlass.core.decisions.decide import cancel, claim, record
from windlass.core.decisions.outcome import Outcome
from windlass.core.decisions.transition import (
    CancelRequest,
    Checkpoint,
    Decision,
    Transition,
    submit,
)
from windlass.core.event import ATTEMPT, Event, EventType, LogRow, Record
from windlass.core.job.event_log import derive
from windlass.core.job.retry_policy import Policy, fixed
from windlass.core.job.row import JobRow
from windlass.core.job.state import State, Trigger


@dataclass
class JobSimulation:
    """One job with its log and clock. Applies every decision of the core as a store does."""

    row: JobRow = field(default_factory=row)
    log: list[LogRow] = field(default_factory=list)
    checkpoints: list[Checkpoint] = field(default_factory=list)
    now: Instant = NOW

    @staticmethod
    def start(**overrides: Any) -> JobSimulation:
        return JobSimulation(row(**overrides))

    def wait(self, seconds: float) -> JobSimulation:
        self.now += round(seconds * SECOND)
        return self

    def past(self, fence: int) -> tuple[UUID, Trigger] | None:
        for log_row in self.log:
            if log_row.type == ATTEMPT and log_row.fence == fence:
                return UUID(log_row.data["token"]), Trigger(log_row.data["outcome"])
        return None

    def apply_decision(self, decision: Decision) -> Decision:
        """Write the changes of a decision, as a store does."""
        self.row = replace(self.row, **decision.changes)
        if decision.needs_position:
            self.row = replace(self.row, position=self.row.seq)
        self.log += decision.log
        self.checkpoints += decision.checkpoints
        return decision

    def claim(self, worker: str = "w1", lease: float = LEASE) -> JobSimulation:
        new_token = token(self.row.fence + 1)
        changes = claim(self.row, token=new_token, worker=worker, lease=lease, now=self.now)
        self.row = replace(self.row, **changes)
        return self

    def transition(self, transition: Transition) -> Decision:
        return self.apply_decision(decide.transition(self.row, transition, self.now, self.past))

    def apply_trigger(self, trigger: Trigger, **overrides: Any) -> Decision:
        """Apply a transition that matches the current row."""
        return self.transition(self.transition_for(trigger, **overrides))

    def transition_for(self, trigger: Trigger, **overrides: Any) -> Transition:
        values: dict[str, Any] = {
            "job_id": self.row.id,
            "fence": self.row.fence,
            "trigger": trigger,
        }
        if trigger.settles or trigger in {Trigger.CRASH, Trigger.GIVE_UP}:
            values["token"] = self.row.token
        return Transition(**(values | overrides))

    def settle_transition(self, outcome: Outcome, **more: Any) -> Transition:
        return outcomes.settle(self.row, outcome, random=no_jitter, **more)

    def settle(self, outcome: Outcome, **more: Any) -> Decision:
        return self.transition(self.settle_transition(outcome, **more))

    def promote(self) -> Decision:
        return self.transition(maintenance.promote(self.row))

    def rescue(self) -> Decision:
        return self.transition(maintenance.rescue(self.row, random=no_jitter))

    def crash(self) -> Decision:
        """Expire the lease of a dead worker and rescue the job."""
        return self.wait(LEASE + 1).rescue()

    def cancel(self, by: str | None = "ann", reason: str | None = "no need") -> Decision:
        cancel_request = CancelRequest(job_id=self.row.id, by=by, reason=reason)
        return self.apply_decision(cancel(self.row, cancel_request, self.now))

    def record(self, *records: Record) -> Decision:
        assert self.row.token is not None
        return self.apply_decision(
            record(self.row, self.row.fence, self.row.token, records, self.now)
        )

    def fail_once(self) -> JobSimulation:
        """Fail one attempt and queue the job again after its backoff."""
        self.claim().settle(outcomes.Failed(failure=RETRYABLE))
        self.wait(2).promote()
        return self

    def events(self, after: int = 0) -> list[Event]:
        return derive(self.row, self.log, after)


def reach(state: State) -> JobSimulation:
    """Return a job in this state, reached in the most common way."""
    sim = JobSimulation.start(delay=10) if state is State.CREATED else JobSimulation.start()
    if state in {State.CREATED, State.QUEUED}:
        return sim
    sim.wait(1).claim().wait(1)
    match state:
        case State.RETRYING:
            sim.settle(outcomes.Failed(failure=RETRYABLE))
        case State.SUCCEEDED:
            sim.settle(outcomes.Succeeded(result=b'"done"'))
        case State.FAILED:
            sim.settle(outcomes.Failed(failure=TERMINAL))
        case State.CANCELED:
            sim.settle(outcomes.Aborted(reason="not needed"))
    assert sim.row.state is state
    return sim


# -- random histories, for Hypothesis

_NON_FINAL_OUTCOMES: st.SearchStrategy[Outcome] = st.sampled_from(
    [
        outcomes.Failed(failure=RETRYABLE),
        outcomes.Failed(failure=RETRYABLE, delay=0.0),
        outcomes.Failed(failure=RETRYABLE, delay=7.0),
        outcomes.Released(),
        outcomes.Snoozed(delay=5.0),
        outcomes.Snoozed(delay=0.0),
        outcomes.Suspended(timeout=5.0),
    ]
)
_FINAL_OUTCOMES: st.SearchStrategy[Outcome] = st.sampled_from(
    [
        outcomes.Succeeded(),
        outcomes.Succeeded(result=b""),
        outcomes.Succeeded(result=b'"ok"'),
        outcomes.Failed(failure=TERMINAL),
        outcomes.Aborted(),
        outcomes.Aborted(reason="enough"),
        outcomes.Suspended(),  # not final, but only a cancel continues it here
    ]
)
_RECORDS = st.lists(
    st.builds(
        Record,
        n=st.integers(1, 8),
        type=st.sampled_from(
            [EventType.STEP_PROGRESS] * 3 + [EventType.LOG, EventType.STEP_STATUS, EventType.OUTPUT]
        ),
        body=st.sampled_from([None, b'"line"']),
        percent=st.one_of(st.none(), st.floats(-50, 150)),
        stage=st.sampled_from([None, "voice", "render"]),
        phase=st.sampled_from([None, "tts", "render"]),
        step=st.sampled_from([None, "one", "two"]),
        checkpoint=st.sampled_from([None, None, b"1"]),
    ),
    max_size=4,
).map(tuple)
_ACTIONS: list[st.SearchStrategy[Any]] = [
    *[st.tuples(_NON_FINAL_OUTCOMES, _RECORDS)] * 6,  # often, so that histories have many attempts
    *[st.just("crash"), _RECORDS, st.just("repeat")] * 2,
    st.tuples(_FINAL_OUTCOMES, _RECORDS),
    *map(st.just, ["claim", "promote", "rescue", "submit", "expire", "cancel"]),
]
STEPS = st.lists(
    st.tuples(
        # The clock mostly moves forward, sometimes far, sometimes back.
        st.sampled_from([0.0, 0.0, 1.0, 1.0, 1.0, 6.0, 40.0, -3.0, -100.0]),
        st.integers(0, len(_ACTIONS) - 1).flatmap(_ACTIONS.__getitem__),
    ),
    min_size=2,
    max_size=24,
)
NEW_JOB_OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "hold": st.just(value=True),
        "delay": st.just(4.0),
        "expires_in": st.just(20.0),
        "headers": st.just({"correlation-id": "c-1"}),
        "policy": st.sampled_from(
            [Policy(backoff=fixed(1), max_retries=1), Policy(backoff=fixed(0), crash_cap=2)]
        ),
    },
)


class RandomJobSimulation(JobSimulation):
    """Runs any step, but skips requests that no caller makes."""

    last: Transition | None = None

    def step(self, seconds: float, action: Any) -> None:
        self.wait(seconds)
        if isinstance(action, str):
            getattr(self, f"try_{action}")()
            return
        self.run()
        if self.row.state is not State.RUNNING:
            pass
        elif action and not isinstance(action[0], Record):
            outcome, records = action
            self.last = self.settle_transition(outcome, records=records)
            assert self.transition(self.last).result.applied
        else:
            self.record(*action)

    def run(self) -> None:
        """Start the next attempt of a waiting job if possible, so that histories get long."""
        if self.row.held:
            self.try_submit()
        if self.row.due_at is not None:
            self.now = max(self.now, self.row.due_at)
            self.try_promote()
        self.try_claim()

    def try_claim(self) -> None:
        expired = self.row.expires_at is not None and self.row.expires_at <= self.now
        if self.row.state is State.QUEUED and not expired:
            self.claim()

    def try_promote(self) -> None:
        self.apply_trigger(Trigger.PROMOTE)

    def try_expire(self) -> None:
        self.apply_trigger(Trigger.EXPIRE)

    def try_submit(self) -> None:
        self.transition(submit(self.row.id))

    def try_cancel(self) -> None:
        self.cancel()

    def try_rescue(self) -> None:
        if self.row.lease_until is not None and self.row.lease_until < self.now:
            self.rescue()

    def try_crash(self) -> None:
        self.run()
        if self.row.lease_until is not None:
            self.now = max(self.now, self.row.lease_until + 1)
            self.rescue()

    def try_repeat(self) -> None:
        if self.last is not None:
            before, length = self.row, len(self.log)
            assert self.transition(self.last).result.applied, "a repeated settle is applied"
            assert (self.row, len(self.log)) == (before, length), "and changes nothing"
