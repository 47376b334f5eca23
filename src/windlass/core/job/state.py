"""The seven states of a job, and all transitions between them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType


class State(StrEnum):
    """State of a job. The last three are final: they never change."""

    __hash__ = str.__hash__  # the hash of Enum is written in Python: 0.15 µs per lookup

    CREATED = "created"  # stored, not queued: held, scheduled, limited, or waiting for other jobs
    QUEUED = "queued"  # ready for a worker
    RUNNING = "running"  # a worker holds its lease
    RETRYING = "retrying"  # between two attempts: after an error, a snooze, an expired lease
    SUCCEEDED = "succeeded"  # its result is stored
    FAILED = "failed"  # its last error is stored; it can be retried or resumed as a new job
    CANCELED = "canceled"  # canceled by a request, by its task, or with a parent

    @property
    def final(self) -> bool:
        """Whether it is succeeded, failed or canceled."""
        return self in FINAL


FINAL = frozenset({State.SUCCEEDED, State.FAILED, State.CANCELED})
ACTIVE = frozenset(State) - FINAL
WAITING = ACTIVE - {State.RUNNING}


class Trigger(StrEnum):
    """Causes of state changes. A row keeps the last one, so that a repeat is recognized."""

    __hash__ = str.__hash__

    ENQUEUE = "enqueue"  # the job was stored
    SUBMIT = "submit"  # a held job is queued
    PROMOTE = "promote"  # a due job is queued
    CLAIM = "claim"  # a worker takes the job, with a lease
    SUCCEED = "succeed"  # the task returned
    RETRY = "retry"  # a retryable error, retries left
    FAIL = "fail"  # a terminal error, or retries exhausted
    RELEASE = "release"  # a stopping worker requeues it; not counted
    SNOOZE = "snooze"  # the task raised Snooze; not counted
    SUSPEND = "suspend"  # the job waits without a slot; not counted
    ABORT = "abort"  # the task raised Cancel
    CRASH = "crash"  # the lease expired, below the crash cap
    GIVE_UP = "give-up"  # the lease expired, at the crash cap
    CANCEL = "cancel"  # a cancel was requested
    EXPIRE = "expire"  # expires_at passed before the first start
    PARENT_CANCEL = "parent-cancel"  # a parent ended without success; policy cancel
    PARENT_FAIL = "parent-fail"  # a parent ended without success; policy fail

    @property
    def settles(self) -> bool:
        """Whether it settles an attempt; only the lease holder may do so."""
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
        # Only recorded: the settle of the attempt, or its rescue, makes it final.
        (State.RUNNING, Trigger.CANCEL): State.RUNNING,
        (State.RETRYING, Trigger.PROMOTE): State.QUEUED,
        (State.RETRYING, Trigger.CANCEL): State.CANCELED,
    }
)


def move(state: State, trigger: Trigger) -> State | None:
    """Return the state that the trigger leads to; None if it is not allowed."""
    return MOVES.get((state, trigger))
