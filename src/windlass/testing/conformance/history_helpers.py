"""Jobs with long histories, for tests that read their logs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

from windlass.core.decisions.outcome import (
    Aborted,
    Failed,
    Outcome,
    Released,
    Snoozed,
    Succeeded,
    Suspended,
)
from windlass.core.decisions.transition import submit
from windlass.core.job.row import JobRow
from windlass.store import Store
from windlass.testing.clock import VirtualClock
from windlass.testing.factories import (
    append_records,
    checkpoint_record,
    claim_one,
    enqueue_one,
    get_one,
    log_record,
    make_failure,
    progress_record,
    settle_one,
    start_one,
    sweep_all,
)

BROKEN = Failed(failure=make_failure(terminal=True))
ENDS: dict[str, Outcome] = {
    "success": Succeeded(result=b'"done"'),
    "failure": Failed(failure=make_failure("Broken", terminal=True, step="render", body=b"why")),
    "its own cancel": Aborted(reason="nothing to do"),
}


async def full_history(store: Store, clock: VirtualClock, end: Outcome) -> AsyncIterator[UUID]:
    """Run one job through nearly every transition; yield its id after each step."""
    job = await enqueue_one(store, hold=True, delay=5, headers={"correlation-id": "c-7"})
    yield job.id
    await store.apply([submit(job.id)])
    yield job.id
    clock.advance(5)
    await sweep_all(store)
    yield job.id

    attempt = await claim_one(store)
    yield job.id
    clock.advance(1)
    await append_records(
        store, attempt, progress_record(1, 10, stage="script", phase="plan"), log_record(2, "hello")
    )
    yield job.id
    await append_records(
        store,
        attempt,
        checkpoint_record(3, "script", b"text"),
        progress_record(4, 25, stage="voice"),
    )
    yield job.id
    clock.advance(1)
    error = make_failure("Flaky", step="voice", body=b"try again")
    last = [log_record(4, "a repeat"), log_record(5, "so be it"), progress_record(6, 30)]
    await settle_one(store, attempt, Failed(failure=error, delay=60), records=last)
    yield job.id
    clock.advance(60)
    await sweep_all(store)
    yield job.id

    attempt = await claim_one(store, worker="worker-2")
    yield job.id
    await append_records(store, attempt, progress_record(1, 5, stage="voice"))
    yield job.id
    clock.advance(31)
    await sweep_all(store)  # its worker crashed
    yield job.id

    attempt = await claim_one(store, worker="worker-3")
    await settle_one(store, attempt, Released())
    yield job.id
    attempt = await claim_one(store)
    await settle_one(store, attempt, Snoozed(delay=10), records=[log_record(1, "later")])
    yield job.id
    clock.advance(10)
    await sweep_all(store)
    attempt = await claim_one(store)
    await settle_one(store, attempt, Suspended(timeout=1))
    yield job.id
    clock.advance(1)
    await sweep_all(store)
    yield job.id

    attempt = await claim_one(store)
    clock.advance(2)
    await append_records(store, attempt, progress_record(1, 80, stage="render", phase="render"))
    yield job.id
    await settle_one(store, attempt, end, records=[log_record(2, "goodbye")])
    yield job.id


async def run_full_history(store: Store, clock: VirtualClock, end: Outcome) -> UUID:
    """Return the id of a job with a full history."""
    ids = [job_id async for job_id in full_history(store, clock, end)]
    return ids[-1]


async def run_long_log(store: Store, attempts: int, notes: int) -> UUID:
    """Return the id of a job with many attempts and many log records each."""
    job = await enqueue_one(store)
    for _ in range(attempts):
        attempt = await claim_one(store)
        await append_records(
            store, attempt, *(log_record(n, f"line {n}") for n in range(1, notes + 1))
        )
        await settle_one(store, attempt, Released())
    await settle_one(store, await claim_one(store), Succeeded())
    return job.id


async def finished(store: Store, outcome: Outcome = BROKEN, **values: Any) -> JobRow:
    """Return a job that ended with this outcome after one attempt. Its queue must be empty."""
    job = await start_one(store, **values)
    await settle_one(store, job, outcome)
    return await get_one(store, job.id)
