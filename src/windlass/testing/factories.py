"""Short helpers for store tests: make, claim, settle and read jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from windlass.core.decisions.maintenance import sweep
from windlass.core.decisions.outcome import Outcome, settle
from windlass.core.decisions.transition import ApplyResult, CancelRequest, Transition
from windlass.core.event import Event, EventType, Record
from windlass.core.ids import uuid7
from windlass.core.job.failure import ErrorKind, Failure
from windlass.core.job.lease import Claim
from windlass.core.job.new_job import DEFAULT_QUEUE, NewJob
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.core.versioned_record import PAUSED, Put
from windlass.store import AttemptRecords, Store


def make_job(**values: Any) -> NewJob:
    """Return a job with a new id; pass only the fields that matter to the test."""
    return NewJob(**{"id": uuid7(), "task": "test.noop", **values})


def make_failure(code: str = "ValueError", *, terminal: bool = False, **values: Any) -> Failure:
    kind = ErrorKind.TERMINAL if terminal else ErrorKind.RETRYABLE
    return Failure(code=code, kind=kind, **values)


def no_jitter() -> float:
    """Return 0.5: a random source for retry delays without jitter."""
    return 0.5


async def claim_all(
    store: Store,
    *queues: str,
    limit: int = 100,
    worker: str = "worker-1",
    lease: float | None = None,
) -> list[JobRow]:
    """Claim up to `limit` jobs from each queue (default queue: "default") with a new token."""
    wanted = [(queue, limit) for queue in queues or ("default",)]
    return await store.claim(Claim(token=uuid7(), worker=worker, queues=wanted, lease=lease))


async def enqueue_one(store: Store, **values: Any) -> JobRow:
    """Enqueue one job, assert that it is accepted, and return its row."""
    [result] = await store.enqueue([make_job(**values)])
    assert result.accepted, result
    assert result.row is not None
    return result.row


async def claim_one(
    store: Store,
    queue: str = DEFAULT_QUEUE,
    *,
    worker: str = "worker-1",
    lease: float | None = None,
) -> JobRow:
    """Claim the next job of this queue."""
    [row] = await claim_all(store, queue, limit=1, worker=worker, lease=lease)
    return row


async def start_one(store: Store, *, worker: str = "worker-1", **values: Any) -> JobRow:
    """Enqueue a job, claim it, and return the row of its attempt. Its queue must be empty."""
    job = await enqueue_one(store, **values)
    row = await claim_one(store, job.queue, worker=worker)
    assert row.id == job.id
    return row


async def settle_one(store: Store, row: JobRow, outcome: Outcome, **more: Any) -> ApplyResult:
    """Settle the attempt of this row."""
    [result] = await store.apply([settle(row, outcome, random=no_jitter, **more)])
    return result


async def apply_one(store: Store, transition: Transition) -> ApplyResult:
    [result] = await store.apply([transition])
    return result


async def cancel_one(store: Store, job_id: UUID, **values: Any) -> ApplyResult:
    [result] = await store.apply([CancelRequest(job_id=job_id, **values)])
    return result


async def get_one(store: Store, job_id: UUID) -> JobRow:
    [row] = await store.get([job_id])
    assert row is not None
    return row


async def read_events(store: Store, job_id: UUID, after: int = 0, limit: int = 1000) -> list[Event]:
    """Return all events after seq `after`, read page by page."""
    found: list[Event] = []
    while True:
        page = await store.events(job_id, after, limit)
        assert page is not None
        found += page.events
        if page.ended or not page.events:
            return found
        after = found[-1].seq


async def sweep_all(store: Store, limit: int = 100) -> list[ApplyResult]:
    """Sweep once: promote and expire due jobs, rescue jobs with an expired lease."""
    return await store.apply([sweep(row, random=no_jitter) for row in await store.due(limit)])


def log_record(n: int, text: str = "", **values: Any) -> Record:
    """Return a log record, number `n` of its attempt."""
    return Record(**{"n": n, "type": EventType.LOG, "body": text.encode(), **values})


def progress_record(n: int, percent: float | None, **values: Any) -> Record:
    """Return a progress record, number `n` of its attempt."""
    return Record(n=n, type=EventType.STEP_PROGRESS, percent=percent, **values)


def checkpoint_record(n: int, step: str, value: bytes, **values: Any) -> Record:
    """Return the record of a step's result, kept for later attempts."""
    return Record(
        n=n, type=EventType.STEP_STATUS, step=step, status="done", checkpoint=value, **values
    )


async def append_records(store: Store, row: JobRow, *records: Record) -> ApplyResult:
    """Write records for the attempt of this row."""
    [result] = await store.record([AttemptRecords(row.lease, records)])
    return result


async def expired_jobs(store: Store, limit: int = 100) -> list[JobRow]:
    """Return running jobs whose lease expired."""
    return [row for row in await store.due(limit) if row.state is State.RUNNING]


async def set_paused(store: Store, queues: Sequence[str], *, paused: bool) -> None:
    """Pause or resume these queues."""
    if paused:
        await store.put_records([Put(kind=PAUSED, key=queue, value=b"") for queue in queues])
    else:
        await store.delete_records(PAUSED, queues)
