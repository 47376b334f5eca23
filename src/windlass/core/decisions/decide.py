"""What becomes of a job: where it stands now, what somebody wants, and the change that follows.

Stores call these under the job's lock and write what they answer; they add nothing but the clock,
the position in line and the storage.
"""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from windlass.core.clock import Instant, after
from windlass.core.decisions import maintenance
from windlass.core.decisions.row_change import Change
from windlass.core.decisions.transition import (
    Answer,
    CancelRequest,
    Changes,
    Checkpoint,
    Decision,
    PastOutcome,
    Signal,
    Status,
    Transition,
)
from windlass.core.event import EventType, Record
from windlass.core.job import failure as failures
from windlass.core.job.dependency import OnParent
from windlass.core.job.failure import ErrorKind, Failure
from windlass.core.job.row import Standing
from windlass.core.job.state import ACTIVE, RESCUING, WAITING, State, Trigger, move


def decide(row: Standing, wish: Transition, now: Instant, past: PastOutcome) -> Decision:
    """What a transition does to a job that stands here."""
    holder = wish.trigger.settles
    speaks = row.token == wish.token or (wish.token is None and not holder)
    if row.fence != wish.fence or not speaks:
        return _not_this_attempt(row, wish, past) if holder else _refuse(Status.STALE, row)
    to = move(row.state, wish.trigger)
    if to is None or (wish.trigger is Trigger.SUBMIT and not row.held):
        return _out_of_turn(row, wish, past)
    if to is State.RUNNING:
        return _refuse(Status.CONFLICT, row)  # to claim and to cancel have verbs of their own
    at = max(now, row.updated_at)
    if wish.trigger in RESCUING and row.lease_until is not None and row.lease_until > at:
        return _refuse(Status.STALE, row)  # it was extended after it was seen
    if wish.trigger in _WAITING_MOVES:
        return _queue_or_expire(row, wish.trigger, at)
    change = Change(row, at)
    if holder or wish.trigger in RESCUING:
        if wish.records:
            change.say(wish.records)
        if row.cancel_requested:
            to = State.CANCELED  # an accepted cancel always wins
        if to is State.RETRYING:
            change.leave_attempt(wish)
        else:
            change.end(to, wish)
    else:
        change.end(to, wish)
    suspends = to is State.RETRYING and wish.trigger is Trigger.SUSPEND
    return change.decision(
        children=wish.children if suspends or to is State.SUCCEEDED else (),
        awaits=wish.awaits if suspends and not change.queued else (),
    )


_WAITING_MOVES = frozenset({Trigger.PROMOTE, Trigger.SUBMIT, Trigger.EXPIRE})


def _refuse(status: Status, row: Standing) -> Decision:
    return Decision(Answer(status, row.state))


def _not_this_attempt(row: Standing, wish: Transition, past: PastOutcome) -> Decision:
    """A settle of an older attempt: a repeat if the log shows that it ended just so, else stale."""
    found = past(wish.fence) if row.fence >= wish.fence else None
    repeat = found == (wish.token, wish.trigger)
    return _refuse(Status.APPLIED if repeat else Status.STALE, row)


def _out_of_turn(row: Standing, wish: Transition, past: PastOutcome) -> Decision:
    if row.trigger is wish.trigger:
        return _refuse(Status.APPLIED, row)  # it is a repeat: it happened, and nothing since
    let_in = row.state is State.QUEUED and bool(row.gates)  # its gate was looked at for this
    if wish.trigger is Trigger.PROMOTE and (row.trigger is Trigger.EXPIRE or let_in):
        return _refuse(Status.APPLIED, row)
    if wish.trigger.settles:
        return _not_this_attempt(row, wish, past)
    return _refuse(Status.CONFLICT, row)


def _queue_or_expire(row: Standing, trigger: Trigger, at: Instant) -> Decision:
    change = Change(row, at)
    if row.expires_at is not None and row.expires_at <= at and row.first_started_at is None:
        expired = Failure(code=failures.EXPIRED, kind=ErrorKind.TERMINAL)
        wish = Transition(job_id=row.id, fence=row.fence, trigger=Trigger.EXPIRE, error=expired)
        change.end(State.FAILED, wish)
        return change.decision()
    if trigger is Trigger.EXPIRE:
        return _refuse(Status.CONFLICT, row)
    early = row.due_at is not None and row.due_at > at
    if trigger is Trigger.SUBMIT:
        change.values |= {"held": False, "trigger": trigger, "updated_at": at}
        if early or row.waiting_for:
            return change.decision()
    elif row.gate is not None:
        return _refuse(Status.APPLIED, row)  # its gate is looked at, like every time
    elif row.held or early or row.due_at is None or (row.waiting_for and not _started(row)):
        return _refuse(Status.CONFLICT, row)
    change.values["trigger"] = trigger
    change.queue()
    return change.decision()


def _started(row: Standing) -> bool:
    """Whether it is suspended: its time wakes it, whoever it still waits for."""
    return row.state is State.RETRYING


def record(
    row: Standing, fence: int, token: UUID, records: Sequence[Record], now: Instant
) -> Decision:
    """What a running attempt says, while it holds its lease."""
    if row.state is not State.RUNNING or row.fence != fence or row.token != token:
        return _refuse(Status.STALE, row)
    change = Change(row, max(now, row.updated_at))
    change.say(records)
    if not change.log:
        return _refuse(Status.APPLIED, row)  # every one of them a repeat
    return change.decision()


def cancel(row: Standing, request: CancelRequest, now: Instant) -> Decision:
    """Final at once for a waiting job, recorded for a running one, too late for a finished one."""
    if row.state not in ACTIVE:
        status = Status.APPLIED if row.state is State.CANCELED else Status.CONFLICT
        return _refuse(status, row)
    if row.cancel_requested:
        return _refuse(Status.APPLIED, row)
    change = Change(row, max(now, row.updated_at))
    change.values |= {"cancel_by": request.by, "cancel_reason": request.reason}
    if row.state is State.RUNNING:
        change.values["cancel_at"] = change.at
        facts = {"by": request.by, "reason": request.reason}
        change.add(EventType.CANCEL_REQUESTED.value, facts, None)
        return change.decision()
    wish = Transition(job_id=row.id, fence=row.fence, trigger=Trigger.CANCEL, reason=request.reason)
    change.end(State.CANCELED, wish)
    return change.decision()


def parent_ended(row: Standing, parent: UUID, ended: State, now: Instant) -> Decision:
    """What the end of one job that it waits for does to a waiting one."""
    if row.state not in WAITING or not row.waiting_for:
        return _refuse(Status.CONFLICT, row)
    at = max(now, row.updated_at)
    change = Change(row, at)
    if ended is not State.SUCCEEDED and not _started(row) and row.on_parent is not OnParent.RUN:
        change.end_with(parent, ended)
        return change.decision()
    change.values = {"waiting_for": row.waiting_for - 1}  # no event, so no other instant
    if row.waiting_for > 1:
        return change.decision()
    if row.held or (row.due_at is not None and row.due_at > at and not _started(row)):
        return change.decision()
    if maintenance.too_late(row, at):
        return change.decision()  # the sweep ends it, like all that expired
    change.values |= {"trigger": Trigger.PROMOTE, "updated_at": at}
    change.queue()
    return change.decision()


def suspended(row: Standing, others: int, now: Instant) -> Decision:
    """How a job goes on that was just suspended, and waits for so many that have not ended."""
    change = Change(row, max(now, row.updated_at))
    if others:
        change.values = {"waiting_for": others}
    else:
        change.queue()
    return change.decision()


def let_in(row: Standing, now: Instant) -> Decision:
    """It passes the gate that it waits at: on to the next one, or into the line."""
    assert row.gate is not None, "only who waits at a gate can pass it"
    later = row.gates[row.gates.index(row.gate) + 1 :]
    change = Change(row, max(now, row.updated_at))
    if later:
        change.values = {"gate": later[0]}
        change.queued = True
    else:
        change.values["gate"] = None
        change.enter()
    return change.decision()


def signal(row: Standing, given: Signal, now: Instant, *, known: bool) -> Decision:
    """Something that a job may wait for has come. The first one of a name stays."""
    if known:
        return _refuse(Status.APPLIED, row)
    if row.state not in ACTIVE:
        return _refuse(Status.CONFLICT, row)
    change = Change(row, max(now, row.updated_at))
    change.checkpoints.append(Checkpoint(given.step, given.value, row.attempt, change.at))
    facts = {"step": given.step, "status": "received"}
    change.add(EventType.STEP_STATUS.value, facts, None)
    change.values["signals"] = row.signals + 1
    waits = row.state is State.RETRYING and row.trigger is Trigger.SUSPEND and not row.waiting_for
    if waits and row.gate is None and not row.cancel_requested:
        change.values["trigger"] = Trigger.PROMOTE
        change.queue()
    return change.decision()


def claim(row: Standing, *, token: UUID, worker: str, lease: float, now: Instant) -> Changes:
    """The row of a queued job once it is handed out."""
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
        "said": 0,
    }
