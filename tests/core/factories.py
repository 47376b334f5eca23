"""Rows to test with, and a `Life`: one job, driven through the core as a store would drive it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any
from uuid import UUID

from hypothesis import strategies as st

from windlass.core.clock import SECOND, Instant
from windlass.core.decisions import maintenance
from windlass.core.decisions import outcome as outcomes
from windlass.core.decisions.decide import cancel, claim, decide, record
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
from windlass.core.job.failure import ErrorKind, Failure
from windlass.core.job.new_job import NewJob
from windlass.core.job.retry_policy import Policy, fixed
from windlass.core.job.row import JobRow, new_row
from windlass.core.job.state import State, Trigger

NOW: Instant = 1_700_000_000_000_000
JOB = UUID("018bcfe5-6800-7000-8000-000000000001")
OTHER = UUID("018bcfe5-6800-7000-8000-000000000002")
TOKEN = UUID("018bcfe5-6800-7000-8000-00000000aaaa")
WRONG_TOKEN = UUID("018bcfe5-6800-7000-8000-00000000bbbb")
LEASE = 30.0

RETRYABLE = Failure(code="io", kind=ErrorKind.RETRYABLE, step="fetch", body=b'{"message":"net"}')
TERMINAL = Failure(code="invalid_input", kind=ErrorKind.TERMINAL, body=b'{"message":"bad"}')
ONE_SECOND_BACKOFF = Policy(backoff=fixed(1))  # one second between attempts: easy to wait for


def no_jitter() -> float:
    """A random source that always answers 0.5."""
    return 0.5


def request(**overrides: Any) -> NewJob:
    asked: dict[str, Any] = {
        "id": JOB,
        "task": "mail.send",
        "policy": ONE_SECOND_BACKOFF,
    } | overrides
    return NewJob(**asked)


def row(now: Instant = NOW, **overrides: Any) -> JobRow:
    return new_row(request(**overrides), now, serial=1)


def progress(n: int, percent: float | None, stage: str | None = None) -> Record:
    phase = None if stage is None else f"{stage}-phase"
    return Record(n=n, type=EventType.STEP_PROGRESS, percent=percent, stage=stage, phase=phase)


def token(fence: int) -> UUID:
    return UUID(int=TOKEN.int + fence)


@dataclass
class JobSimulation:
    """A job, its log and the store's clock; every change goes through the functions of the core."""

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
        for line in self.log:
            if line.type == ATTEMPT and line.fence == fence:
                return UUID(line.data["token"]), Trigger(line.data["outcome"])
        return None

    def apply_decision(self, decision: Decision) -> Decision:
        """Write what was decided, as a store does."""
        self.row = replace(self.row, **decision.changes)
        if decision.needs_position:
            self.row = replace(self.row, position=self.row.seq)
        self.log += decision.log
        self.checkpoints += decision.checkpoints
        return decision

    def claim(self, worker: str = "w1", lease: float = LEASE) -> JobSimulation:
        held = token(self.row.fence + 1)
        changes = claim(self.row, token=held, worker=worker, lease=lease, now=self.now)
        self.row = replace(self.row, **changes)
        return self

    def transition(self, transition: Transition) -> Decision:
        return self.apply_decision(decide(self.row, transition, self.now, self.past))

    def apply_trigger(self, trigger: Trigger, **overrides: Any) -> Decision:
        """A transition by someone who saw the row as it is now."""
        return self.transition(self.transition_for(trigger, **overrides))

    def transition_for(self, trigger: Trigger, **overrides: Any) -> Transition:
        seen: dict[str, Any] = {"job_id": self.row.id, "fence": self.row.fence, "trigger": trigger}
        if trigger.settles or trigger in {Trigger.CRASH, Trigger.GIVE_UP}:
            seen["token"] = self.row.token
        return Transition(**(seen | overrides))

    def settle_transition(self, outcome: Outcome, **more: Any) -> Transition:
        return outcomes.settle(self.row, outcome, random=no_jitter, **more)

    def settle(self, outcome: Outcome, **more: Any) -> Decision:
        return self.transition(self.settle_transition(outcome, **more))

    def promote(self) -> Decision:
        return self.transition(maintenance.promote(self.row))

    def rescue(self) -> Decision:
        return self.transition(maintenance.rescue(self.row, random=no_jitter))

    def crash(self) -> Decision:
        """The worker dies, the lease runs out, maintenance takes the job back."""
        return self.wait(LEASE + 1).rescue()

    def cancel(self, by: str | None = "ann", reason: str | None = "no need") -> Decision:
        asked = CancelRequest(job_id=self.row.id, by=by, reason=reason)
        return self.apply_decision(cancel(self.row, asked, self.now))

    def record(self, *records: Record) -> Decision:
        assert self.row.token is not None
        return self.apply_decision(
            record(self.row, self.row.fence, self.row.token, records, self.now)
        )

    def fail_once(self) -> JobSimulation:
        """One counted failure, waited out, back in the line."""
        self.claim().settle(outcomes.Failed(failure=RETRYABLE))
        self.wait(2).promote()
        return self

    def events(self, after: int = 0) -> list[Event]:
        return derive(self.row, self.log, after)


def reach(state: State) -> JobSimulation:
    """A job in this state, brought there by the commonest way."""
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


def assert_valid_row(job: JobRow) -> None:
    """What section 3 of the contract says of every row, at every moment."""
    instants = [job.created_at, job.queued_at, job.started_at, job.ended_at, job.updated_at]
    known = [instant for instant in instants if instant is not None]
    assert known == sorted(known), "created <= queued <= started <= ended <= updated"
    assert (job.ended_at is not None) == job.state.final
    assert (job.lease_until is not None) == (job.state is State.RUNNING)
    if job.state is State.CREATED:
        assert job.queued_at is None
    if job.state in {State.QUEUED, State.RUNNING, State.RETRYING}:
        assert job.queued_at is not None
    if job.state is State.QUEUED:
        assert job.started_at is None
        assert job.position is not None
    if job.state is State.RUNNING:
        assert job.started_at is not None
        assert job.token is not None
    assert (job.first_started_at is not None) == (job.attempt > 0)
    assert job.attempt == job.fence
    assert 0 <= job.percent <= 100
    if job.state is State.SUCCEEDED:
        assert job.percent == 100
        assert job.error is None


def nothing_changed(decision: Decision) -> bool:
    return not (
        decision.changes
        or decision.log
        or decision.checkpoints
        or decision.children
        or decision.needs_position
        or decision.sample
    )


# -- a random life, for Hypothesis

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
        outcomes.Suspended(),  # not an end, but nothing here wakes it again, except a cancel
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
    *[st.tuples(_NON_FINAL_OUTCOMES, _RECORDS)] * 6,  # often, so that lives have many attempts
    *[st.just("crash"), _RECORDS, st.just("repeat")] * 2,
    st.tuples(_FINAL_OUTCOMES, _RECORDS),
    *map(st.just, ["claim", "promote", "rescue", "submit", "expire", "cancel"]),
]
STEPS = st.lists(
    st.tuples(
        # The clock mostly moves on, at times far, at times back.
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
    """A life that takes any step and leaves out what a caller would never ask for."""

    last: Transition | None = None

    def step(self, seconds: float, what: Any) -> None:
        self.wait(seconds)
        if isinstance(what, str):
            getattr(self, f"try_{what}")()
            return
        self.run()
        if self.row.state is not State.RUNNING:
            pass
        elif what and not isinstance(what[0], Record):
            outcome, records = what
            self.last = self.settle_transition(outcome, records=records)
            assert self.transition(self.last).result.applied
        else:
            self.record(*what)

    def run(self) -> None:
        """Bring a waiting job to its next attempt if anything can, so that lives grow long."""
        if self.row.held:
            self.try_submit()
        if self.row.due_at is not None:
            self.now = max(self.now, self.row.due_at)
            self.try_promote()
        self.try_claim()

    def try_claim(self) -> None:
        late = self.row.expires_at is not None and self.row.expires_at <= self.now
        if self.row.state is State.QUEUED and not late:
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
            assert self.transition(self.last).result.applied, (
                "a repeated settle is answered applied"
            )
            assert (self.row, len(self.log)) == (before, length), "and changes nothing"
