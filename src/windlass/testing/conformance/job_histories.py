"""Jobs with much behind them, for the tests that read their logs."""

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
    submit,
)
from windlass.core.job.row import JobRow
from windlass.store import Store
from windlass.testing.clock import VirtualClock
from windlass.testing.factories import (
    claim_one,
    enqueue_one,
    get_one,
    make_failure,
    note,
    progress,
    say,
    settle_one,
    start_one,
    step_done,
    sweep_all,
)

BROKEN = Failed(failure=make_failure(terminal=True))
ENDS: dict[str, Outcome] = {
    "success": Succeeded(result=b'"done"'),
    "failure": Failed(failure=make_failure("Broken", terminal=True, step="render", body=b"why")),
    "its own cancel": Aborted(reason="nothing to do"),
}


async def rich_life(store: Store, clock: VirtualClock, end: Outcome) -> AsyncIterator[UUID]:
    """One job through nearly everything that can happen to one; yields after each step."""
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
    await say(store, attempt, progress(1, 10, stage="script", phase="plan"), note(2, "hello"))
    yield job.id
    await say(store, attempt, step_done(3, "script", b"text"), progress(4, 25, stage="voice"))
    yield job.id
    clock.advance(1)
    error = make_failure("Flaky", step="voice", body=b"try again")
    last = [note(4, "a repeat"), note(5, "so be it"), progress(6, 30)]
    await settle_one(store, attempt, Failed(failure=error, delay=60), records=last)
    yield job.id
    clock.advance(60)
    await sweep_all(store)
    yield job.id

    attempt = await claim_one(store, worker="worker-2")
    yield job.id
    await say(store, attempt, progress(1, 5, stage="voice"))
    yield job.id
    clock.advance(31)
    await sweep_all(store)  # its worker died
    yield job.id

    attempt = await claim_one(store, worker="worker-3")
    await settle_one(store, attempt, Released())
    yield job.id
    attempt = await claim_one(store)
    await settle_one(store, attempt, Snoozed(delay=10), records=[note(1, "later")])
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
    await say(store, attempt, progress(1, 80, stage="render", phase="render"))
    yield job.id
    await settle_one(store, attempt, end, records=[note(2, "goodbye")])
    yield job.id


async def lived(store: Store, clock: VirtualClock, end: Outcome) -> UUID:
    """The id of a job that has such a life behind it."""
    ids = [job_id async for job_id in rich_life(store, clock, end)]
    return ids[-1]


async def chatter(store: Store, attempts: int, notes: int) -> UUID:
    """A job with many attempts, each of which said much."""
    job = await enqueue_one(store)
    for _ in range(attempts):
        attempt = await claim_one(store)
        await say(store, attempt, *(note(n, f"line {n}") for n in range(1, notes + 1)))
        await settle_one(store, attempt, Released())
    await settle_one(store, await claim_one(store), Succeeded())
    return job.id


async def finished(store: Store, outcome: Outcome = BROKEN, **values: Any) -> JobRow:
    """A job that ended so, after one attempt. Its queue must be empty."""
    job = await start_one(store, **values)
    await settle_one(store, job, outcome)
    return await get_one(store, job.id)
