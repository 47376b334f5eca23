"""Factories of rows and records, and checks of rows and decisions."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from windlass.core.clock import Instant
from windlass.core.decisions.transition import (
    Decision,
)
from windlass.core.event import EventType, Record
from windlass.core.job.failure import ErrorKind, Failure
from windlass.core.job.new_job import NewJob
from windlass.core.job.retry_policy import Policy, fixed
from windlass.core.job.row import JobRow, new_row
from windlass.core.job.state import State

NOW: Instant = 1_700_000_000_000_000
JOB = UUID("018bcfe5-6800-7000-8000-000000000001")
OTHER = UUID("018bcfe5-6800-7000-8000-000000000002")
TOKEN = UUID("018bcfe5-6800-7000-8000-00000000aaaa")
WRONG_TOKEN = UUID("018bcfe5-6800-7000-8000-00000000bbbb")
LEASE = 30.0

RETRYABLE = Failure(code="io", kind=ErrorKind.RETRYABLE, step="fetch", body=b'{"message":"net"}')
TERMINAL = Failure(code="invalid_input", kind=ErrorKind.TERMINAL, body=b'{"message":"bad"}')
ONE_SECOND_BACKOFF = Policy(backoff=fixed(1))  # one second between attempts


def no_jitter() -> float:
    """Return 0.5: a random source for backoffs without jitter."""
    return 0.5


def request(**overrides: Any) -> NewJob:
    values: dict[str, Any] = {
        "id": JOB,
        "task": "mail.send",
        "policy": ONE_SECOND_BACKOFF,
    } | overrides
    return NewJob(**values)


def row(now: Instant = NOW, **overrides: Any) -> JobRow:
    return new_row(request(**overrides), now, serial=1)


def progress(n: int, percent: float | None, stage: str | None = None) -> Record:
    phase = None if stage is None else f"{stage}-phase"
    return Record(n=n, type=EventType.STEP_PROGRESS, percent=percent, stage=stage, phase=phase)


def token(fence: int) -> UUID:
    return UUID(int=TOKEN.int + fence)


def assert_valid_row(job: JobRow) -> None:
    """Check the rules that every row fulfills at every moment."""
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
