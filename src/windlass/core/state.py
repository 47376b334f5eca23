"""The seven states and every move between them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class State(StrEnum):
    __hash__ = str.__hash__  # the enum's own is written in Python: 0.15 µs for each look-up

    CREATED = "created"
    QUEUED = "queued"
    RUNNING = "running"
    RETRYING = "retrying"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELED = "canceled"

    @property
    def final(self) -> bool:
        return self in FINAL


FINAL = frozenset({State.SUCCEEDED, State.FAILED, State.CANCELED})
ACTIVE = frozenset(State) - FINAL
WAITING = ACTIVE - {State.RUNNING}


class Trigger(StrEnum):
    """What may happen to a job. A row remembers the last one, so that a repeat is recognised."""

    __hash__ = str.__hash__

    ENQUEUE = "enqueue"
    SUBMIT = "submit"  # an operator queues what was held
    PROMOTE = "promote"  # its time came
    CLAIM = "claim"
    SUCCEED = "succeed"
    RETRY = "retry"  # a retryable error, retries left
    FAIL = "fail"  # a terminal error, or retries exhausted
    RELEASE = "release"
    SNOOZE = "snooze"
    SUSPEND = "suspend"
    ABORT = "abort"  # the task raised Cancel
    CRASH = "crash"  # the lease expired, below the crash cap
    GIVE_UP = "give-up"  # the lease expired, at the crash cap
    CANCEL = "cancel"
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
