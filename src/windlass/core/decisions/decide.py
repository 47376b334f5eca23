"""Decisions about a job: from its row and a request to the changes to write.

Stores call these functions under the job's lock and write the result. They only add the clock and
the queue position.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from windlass.core.clock import Instant, after
from windlass.core.decisions import maintenance
from windlass.core.decisions.decision_builder import DecisionBuilder
from windlass.core.decisions.transition import (
    ApplyRequest,
    ApplyResult,
    CancelRequest,
    Changes,
    Checkpoint,
    Decision,
    PastOutcome,
    SignalRequest,
    Status,
    StoredJob,
    Transition,
)
from windlass.core.event import EventType, Record
from windlass.core.job import failure as failures
from windlass.core.job.dependency import OnParent
from windlass.core.job.failure import ErrorKind, Failure
from windlass.core.job.row import LifecycleRow
from windlass.core.job.state import ACTIVE, RESCUING, WAITING, State, Trigger, move


def decide(row: LifecycleRow, request: ApplyRequest, now: Instant, stored: StoredJob) -> Decision:
    """Decide what a request does to a job. A job of another owner counts as missing."""
    if isinstance(request, Transition):
        return transition(row, request, now, stored.past_outcome)
    if request.owner is not None and request.owner != stored.owner:
        return Decision(ApplyResult(Status.MISSING))
    if isinstance(request, CancelRequest):
        return cancel(row, request, now)
    return signal(row, request, now, exists=stored.has_step(request.step))


def transition(
    row: LifecycleRow, transition: Transition, now: Instant, past: PastOutcome
) -> Decision:
    """Decide what a transition does to a job."""
    settles = transition.trigger.settles
    token_valid = row.token == transition.token or (transition.token is None and not settles)
    if row.fence != transition.fence or not token_valid:
        return (
            _settle_of_other_attempt(row, transition, past)
            if settles
            else _no_change(Status.STALE, row)
        )
    to = move(row.state, transition.trigger)
    if to is None or (transition.trigger is Trigger.SUBMIT and not row.held):
        return _invalid_move(row, transition, past)
    if to is State.RUNNING:
        return _no_change(Status.CONFLICT, row)  # only a claim or a CancelRequest does this
    at = max(now, row.updated_at)
    if transition.trigger in RESCUING and row.lease_until is not None and row.lease_until > at:
        return _no_change(Status.STALE, row)  # the lease was extended after it was read
    if transition.trigger in _WAITING_MOVES:
        return _queue_or_expire(row, transition.trigger, at)
    change = DecisionBuilder(row, at)
    if settles or transition.trigger in RESCUING:
        if transition.records:
            change.add_records(transition.records)
        if row.cancel_requested:
            to = State.CANCELED  # an accepted cancel always wins
        if to is State.RETRYING:
            change.end_attempt(transition)
        else:
            change.end(to, transition)
    else:
        change.end(to, transition)
    suspends = to is State.RETRYING and transition.trigger is Trigger.SUSPEND
    return change.decision(
        children=transition.children if suspends or to is State.SUCCEEDED else (),
        awaits=transition.awaits if suspends and not change.queued else (),
    )


_WAITING_MOVES = frozenset({Trigger.PROMOTE, Trigger.SUBMIT, Trigger.EXPIRE})


def _no_change(status: Status, row: LifecycleRow) -> Decision:
    return Decision(ApplyResult(status, row.state))


def _settle_of_other_attempt(
    row: LifecycleRow, transition: Transition, past: PastOutcome
) -> Decision:
    """Decide a settle of an older attempt: a repeat if the log shows this outcome, else stale."""
    found = past(transition.fence) if row.fence >= transition.fence else None
    repeat = found == (transition.token, transition.trigger)
    return _no_change(Status.APPLIED if repeat else Status.STALE, row)


def _invalid_move(row: LifecycleRow, transition: Transition, past: PastOutcome) -> Decision:
    if row.trigger is transition.trigger:
        return _no_change(Status.APPLIED, row)  # a repeat: this was the last change
    admitted = row.state is State.QUEUED and bool(row.gates)  # by the check of its gate
    if transition.trigger is Trigger.PROMOTE and (row.trigger is Trigger.EXPIRE or admitted):
        return _no_change(Status.APPLIED, row)
    if transition.trigger.settles:
        return _settle_of_other_attempt(row, transition, past)
    return _no_change(Status.CONFLICT, row)


def _queue_or_expire(row: LifecycleRow, trigger: Trigger, at: Instant) -> Decision:
    change = DecisionBuilder(row, at)
    if row.expires_at is not None and row.expires_at <= at and row.first_started_at is None:
        expired = Failure(code=failures.EXPIRED, kind=ErrorKind.TERMINAL)
        transition = Transition(
            job_id=row.id, fence=row.fence, trigger=Trigger.EXPIRE, error=expired
        )
        change.end(State.FAILED, transition)
        return change.decision()
    if trigger is Trigger.EXPIRE:
        return _no_change(Status.CONFLICT, row)
    early = row.due_at is not None and row.due_at > at
    if trigger is Trigger.SUBMIT:
        change.values |= {"held": False, "trigger": trigger, "updated_at": at}
        if early or row.waiting_for:
            return change.decision()
    elif row.gate is not None:
        return _no_change(Status.APPLIED, row)  # the store checks its gate anyway
    elif row.held or early or row.due_at is None or (row.waiting_for and not _started(row)):
        return _no_change(Status.CONFLICT, row)
    change.values["trigger"] = trigger
    change.queue()
    return change.decision()


def _started(row: LifecycleRow) -> bool:
    """Whether it has run before. A suspended job wakes at its time, even with open parents."""
    return row.state is State.RETRYING


def record(
    row: LifecycleRow, fence: int, token: UUID, records: Sequence[Record], now: Instant
) -> Decision:
    """Decide on records of a running attempt; stale if it lost its lease."""
    if row.state is not State.RUNNING or row.fence != fence or row.token != token:
        return _no_change(Status.STALE, row)
    change = DecisionBuilder(row, max(now, row.updated_at))
    change.add_records(records)
    if not change.log:
        return _no_change(Status.APPLIED, row)  # all of them are repeats
    return change.decision()


def cancel(row: LifecycleRow, request: CancelRequest, now: Instant) -> Decision:
    """Decide a cancel: ends a waiting job, is recorded for a running one, else a conflict."""
    if row.state not in ACTIVE:
        status = Status.APPLIED if row.state is State.CANCELED else Status.CONFLICT
        return _no_change(status, row)
    if row.cancel_requested:
        return _no_change(Status.APPLIED, row)
    change = DecisionBuilder(row, max(now, row.updated_at))
    change.values |= {"cancel_by": request.by, "cancel_reason": request.reason}
    if row.state is State.RUNNING:
        change.values["cancel_at"] = change.at
        data = {"by": request.by, "reason": request.reason}
        change.add(EventType.CANCEL_REQUESTED.value, data, None)
        return change.decision()
    transition = Transition(
        job_id=row.id, fence=row.fence, trigger=Trigger.CANCEL, reason=request.reason
    )
    change.end(State.CANCELED, transition)
    return change.decision()


def parent_ended(row: LifecycleRow, parent: UUID, ended: State, now: Instant) -> Decision:
    """Decide what the end of a parent does to a job that waits for it."""
    if row.state not in WAITING or not row.waiting_for:
        return _no_change(Status.CONFLICT, row)
    at = max(now, row.updated_at)
    change = DecisionBuilder(row, at)
    if ended is not State.SUCCEEDED and not _started(row) and row.on_parent is not OnParent.RUN:
        change.end_with_parent(parent, ended)
        return change.decision()
    change.values = {"waiting_for": row.waiting_for - 1}  # no event, so updated_at stays
    if row.waiting_for > 1:
        return change.decision()
    if row.held or (row.due_at is not None and row.due_at > at and not _started(row)):
        return change.decision()
    if maintenance.expired(row, at):
        return change.decision()  # the sweep expires it
    change.values |= {"trigger": Trigger.PROMOTE, "updated_at": at}
    change.queue()
    return change.decision()


def after_suspend(row: LifecycleRow, open_jobs: int, now: Instant) -> Decision:
    """Decide how a job continues that was just suspended and awaits `open_jobs` unfinished jobs."""
    change = DecisionBuilder(row, max(now, row.updated_at))
    if open_jobs:
        change.values = {"waiting_for": open_jobs}
    else:
        change.queue()
    return change.decision()


def admit(row: LifecycleRow, now: Instant) -> Decision:
    """Admit a job at its gate: it moves to its next gate, or into the queue."""
    assert row.gate is not None, "only a job that waits at a gate can be admitted"
    later = row.gates[row.gates.index(row.gate) + 1 :]
    change = DecisionBuilder(row, max(now, row.updated_at))
    if later:
        change.values = {"gate": later[0]}
        change.queued = True
    else:
        change.values["gate"] = None
        change.enter_queue()
    return change.decision()


def signal(row: LifecycleRow, request: SignalRequest, now: Instant, *, exists: bool) -> Decision:
    """Decide on a signal. The first one of a name is kept."""
    if exists:
        return _no_change(Status.APPLIED, row)
    if row.state not in ACTIVE:
        return _no_change(Status.CONFLICT, row)
    change = DecisionBuilder(row, max(now, row.updated_at))
    change.checkpoints.append(Checkpoint(request.step, request.value, row.attempt, change.at))
    data = {"step": request.step, "status": "received"}
    change.add(EventType.STEP_STATUS.value, data, None)
    change.values["signals"] = row.signals + 1
    waits = row.state is State.RETRYING and row.trigger is Trigger.SUSPEND and not row.waiting_for
    if waits and row.gate is None and not row.cancel_requested:
        change.values["trigger"] = Trigger.PROMOTE
        change.queue()
    return change.decision()


def claim(row: LifecycleRow, *, token: UUID, worker: str, lease: float, now: Instant) -> Changes:
    """Return the changes of a row when its job is claimed."""
    at = max(now, row.updated_at)
    return {
        "state": State.RUNNING,
        "trigger": Trigger.CLAIM,
        "attempt": row.attempt + 1,
        "fence": row.fence + 1,
        "token": token,
        "worker": worker,
        "lease_until": after(at, lease),
        "started_at": at,
        "first_started_at": row.first_started_at if row.first_started_at is not None else at,
        "updated_at": at,
        "seq": row.seq + 1,
        "started_seq": row.seq + 1,
        "last_record": 0,
    }
