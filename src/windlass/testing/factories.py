"""Short words for what nearly every test needs."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from windlass.core.decisions.outcome import Outcome, settle, sweep
from windlass.core.decisions.transition import Answer, CancelRequest, Transition
from windlass.core.event import Event, EventType, Record
from windlass.core.ids import uuid7
from windlass.core.job.failure import ErrorKind, Failure
from windlass.core.job.lease import Claim
from windlass.core.job.row import DEFAULT_QUEUE, JobRow, NewJob
from windlass.store import Saying, Store


def make_job(**values: Any) -> NewJob:
    """A job with a fresh id; name only what matters to the test."""
    return NewJob(**{"id": uuid7(), "task": "test.noop", **values})


def make_failure(code: str = "ValueError", *, terminal: bool = False, **values: Any) -> Failure:
    kind = ErrorKind.TERMINAL if terminal else ErrorKind.RETRYABLE
    return Failure(code=code, kind=kind, **values)


def even() -> float:
    """Randomness without surprises: always the middle."""
    return 0.5


async def claim_all(
    store: Store,
    *queues: str,
    limit: int = 100,
    worker: str = "worker-1",
    lease: float | None = None,
) -> list[JobRow]:
    """Claim up to `limit` from each queue (the default one if none is named), with a new token."""
    wanted = [(queue, limit) for queue in queues or ("default",)]
    return await store.claim(Claim(token=uuid7(), worker=worker, queues=wanted, lease=lease))


async def enqueue_one(store: Store, **values: Any) -> JobRow:
    """Enqueue one job that nothing stands in the way of; its row as the store answers it."""
    [answer] = await store.enqueue([make_job(**values)])
    assert answer.accepted, answer
    assert answer.row is not None
    return answer.row


async def claim_one(
    store: Store,
    queue: str = DEFAULT_QUEUE,
    *,
    worker: str = "worker-1",
    lease: float | None = None,
) -> JobRow:
    """Claim the one job that is next in this queue."""
    [row] = await claim_all(store, queue, limit=1, worker=worker, lease=lease)
    return row


async def start_one(store: Store, *, worker: str = "worker-1", **values: Any) -> JobRow:
    """Enqueue a job and claim it: the row of a running attempt. Its queue must be empty."""
    job = await enqueue_one(store, **values)
    row = await claim_one(store, job.queue, worker=worker)
    assert row.id == job.id
    return row


async def settle_one(store: Store, row: JobRow, outcome: Outcome, **more: Any) -> Answer:
    """End the attempt that this row was claimed for."""
    [answer] = await store.apply([settle(row, outcome, random=even, **more)])
    return answer


async def apply_one(store: Store, wish: Transition) -> Answer:
    [answer] = await store.apply([wish])
    return answer


async def cancel_one(store: Store, job_id: UUID, **values: Any) -> Answer:
    [answer] = await store.cancel([CancelRequest(job_id=job_id, **values)])
    return answer


async def get_one(store: Store, job_id: UUID) -> JobRow:
    [row] = await store.get([job_id])
    assert row is not None
    return row


async def read_events(store: Store, job_id: UUID, after: int = 0, limit: int = 1000) -> list[Event]:
    """The whole log above `after`, page by page."""
    found: list[Event] = []
    while True:
        page = await store.events(job_id, after, limit)
        assert page is not None
        found += page.events
        if page.ended or not page.events:
            return found
        after = found[-1].seq


async def sweep_all(store: Store, limit: int = 100) -> list[Answer]:
    """What maintenance does: promote and expire what is due, rescue what lost its lease."""
    rows = [*await store.due(limit), *await store.expired(limit)]
    return await store.apply([sweep(row, random=even) for row in rows])


def note(n: int, text: str = "", **values: Any) -> Record:
    """A log line, the n-th record of its attempt."""
    return Record(**{"n": n, "type": EventType.LOG, "body": text.encode(), **values})


def progress(n: int, percent: float | None, **values: Any) -> Record:
    """A report of progress, the n-th record of its attempt."""
    return Record(n=n, type=EventType.STEP_PROGRESS, percent=percent, **values)


def step_done(n: int, step: str, value: bytes, **values: Any) -> Record:
    """A step's result, recorded for later attempts."""
    return Record(
        n=n, type=EventType.STEP_STATUS, step=step, status="done", checkpoint=value, **values
    )


async def say(store: Store, row: JobRow, *records: Record) -> Answer:
    """Record what the attempt that this row was claimed for says."""
    [answer] = await store.record([Saying(row.lease, records)])
    return answer
