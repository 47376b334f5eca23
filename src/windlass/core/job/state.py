"""The seven states and every move between them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class State(StrEnum):
    """Where a job stands; the last three are final, and nothing leads out of them."""

    __hash__ = str.__hash__  # the enum's own is written in Python: 0.15 µs for each look-up

    CREATED = "created"  # stored, not in line: it is held, or its time has not come
    QUEUED = "queued"  # in line for a worker
    RUNNING = "running"  # a worker holds its lease
    RETRYING = "retrying"  # between two attempts: after an error, a snooze, a lost lease
    SUCCEEDED = "succeeded"  # its result is stored
    FAILED = "failed"  # its last error is stored; it can be retried or resumed as a new job
    CANCELED = "canceled"  # somebody canceled it, or its task did

    @property
    def final(self) -> bool:
        """Whether it is over: succeeded, failed or canceled."""
        return self in FINAL


FINAL = frozenset({State.SUCCEEDED, State.FAILED, State.CANCELED})
ACTIVE = frozenset(State) - FINAL
WAITING = ACTIVE - {State.RUNNING}


class Trigger(StrEnum):
    """What may happen to a job. A row remembers the last one, so that a repeat is recognised."""

    __hash__ = str.__hash__

    ENQUEUE = "enqueue"  # it was stored
    SUBMIT = "submit"  # an operator queues what was held
    PROMOTE = "promote"  # its time came
    CLAIM = "claim"  # a worker takes it, with a lease
    SUCCEED = "succeed"  # the task returned
    RETRY = "retry"  # a retryable error, retries left
    FAIL = "fail"  # a terminal error, or retries exhausted
    RELEASE = "release"  # a stopping worker gives it back, uncounted
    SNOOZE = "snooze"  # the task raised Snooze: later, uncounted
    SUSPEND = "suspend"  # it waits for something without a slot, uncounted
    ABORT = "abort"  # the task raised Cancel
    CRASH = "crash"  # the lease expired, below the crash cap
    GIVE_UP = "give-up"  # the lease expired, at the crash cap
    CANCEL = "cancel"  # somebody asked for it
    EXPIRE = "expire"  # expires_at passed before the first start
    PARENT_CANCEL = "parent-cancel"  # a parent ended without success; policy cancel
    PARENT_FAIL = "parent-fail"  # the same; policy fail

    @property
    def settles(self) -> bool:
        """Whether the holder of the lease says this, for its attempt."""
        return self in SETTLING


SETTLING = frozenset(
    {
        Trigger.SUCCEED,
        Trigger.RETRY,
        Trigger.FAIL,
        Trigger.RELEASE,
        Trigger.SNOOZE,
        Trigger.SUSPEND,
        Trigger.ABORT,
    }
)
RESCUING = frozenset({Trigger.CRASH, Trigger.GIVE_UP})

MOVES: Mapping[tuple[State, Trigger], State] = MappingProxyType(
    {
        (State.CREATED, Trigger.SUBMIT): State.QUEUED,
        (State.CREATED, Trigger.PROMOTE): State.QUEUED,
        (State.CREATED, Trigger.CANCEL): State.CANCELED,
        (State.CREATED, Trigger.PARENT_CANCEL): State.CANCELED,
        (State.CREATED, Trigger.PARENT_FAIL): State.FAILED,
        (State.CREATED, Trigger.EXPIRE): State.FAILED,
        (State.QUEUED, Trigger.CLAIM): State.RUNNING,
        (State.QUEUED, Trigger.CANCEL): State.CANCELED,
        (State.QUEUED, Trigger.PARENT_CANCEL): State.CANCELED,
        (State.QUEUED, Trigger.PARENT_FAIL): State.FAILED,
        (State.QUEUED, Trigger.EXPIRE): State.FAILED,
        (State.RUNNING, Trigger.SUCCEED): State.SUCCEEDED,
        (State.RUNNING, Trigger.RETRY): State.RETRYING,
        (State.RUNNING, Trigger.FAIL): State.FAILED,
        (State.RUNNING, Trigger.RELEASE): State.RETRYING,
        (State.RUNNING, Trigger.SNOOZE): State.RETRYING,
        (State.RUNNING, Trigger.SUSPEND): State.RETRYING,
        (State.RUNNING, Trigger.ABORT): State.CANCELED,
        (State.RUNNING, Trigger.CRASH): State.RETRYING,
        (State.RUNNING, Trigger.GIVE_UP): State.FAILED,
        # Recorded while the task is told; the attempt's own end, or its rescue, makes it final.
        (State.RUNNING, Trigger.CANCEL): State.RUNNING,
        (State.RETRYING, Trigger.PROMOTE): State.QUEUED,
        (State.RETRYING, Trigger.CANCEL): State.CANCELED,
    }
)


def move(state: State, trigger: Trigger) -> State | None:
    """Where the trigger leads from here, or None when it is refused."""
    return MOVES.get((state, trigger))
