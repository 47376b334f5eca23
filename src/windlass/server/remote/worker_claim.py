"""Claims for remote workers: the wait for jobs, and jobs of unknown tasks."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Sequence
from typing import Any

from fastapi import Request

from windlass.core.codec import Purpose
from windlass.core.decisions.outcome import Failed, Outcome, Snoozed, settle
from windlass.core.event import EventType, Record
from windlass.core.job.lease import Claim
from windlass.core.job.row import JobRow
from windlass.server.context import RequestContext
from windlass.worker.execution.attempt_failure import failure_from_error
from windlass.worker.execution.unknown_tasks import (
    UNKNOWN_TASK_DELAY,
    unknown_task_error,
    unknown_too_long,
)

POLL_INTERVAL = 1.0  # seconds; finds jobs that became claimable without a wakeup


async def claim_jobs(
    ctx: RequestContext, request_claim: Claim, wait: float, request: Request
) -> list[JobRow]:
    """Claim jobs, and wait for one if there is none.

    Waits for: a job, for at most `wait` seconds, the disconnect of the caller, or the shutdown.
    Guarantees: claims nothing for a caller that is known to be gone or without access. If it is
    gone later, the lease expires, as with any lost worker. The first claim needs no stream quota.
    """
    store, wakeups = ctx.client.store, ctx.server.wakeups
    clock = asyncio.get_running_loop().time
    end = clock() + wait
    cursor = await wakeups.cursor()
    rows = await store.claim(request_claim)
    if rows or wait <= 0:
        return rows
    with ctx.long_poll() as stop_event:
        while (left := end - clock()) > 0:
            await _first_of(wakeups.wait(cursor, min(left, POLL_INTERVAL)), stop_event.wait())
            if stop_event.is_set() or await request.is_disconnected():
                return []
            cursor = await wakeups.cursor()
            rows = await store.claim(request_claim)
            if rows:
                return rows
    return []


async def _first_of(*waits: Awaitable[Any]) -> None:
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def snooze_unknown_tasks(
    ctx: RequestContext, rows: Sequence[JobRow], tasks: frozenset[str]
) -> list[JobRow]:
    """Return the jobs whose tasks the worker has; snooze the others for another worker."""
    known = [row for row in rows if row.task in tasks]
    transitions = [
        settle(
            row,
            await _unknown_outcome(ctx, row),
            random=random.random,
            records=[_warning(ctx, row)],
        )
        for row in rows
        if row.task not in tasks
    ]
    await ctx.client.store.apply(transitions)
    return known


async def _unknown_outcome(ctx: RequestContext, row: JobRow) -> Outcome:
    if await unknown_too_long(ctx.client.store, row):
        return Failed(
            failure=failure_from_error(unknown_task_error(row), ctx.app.codec, terminal=True)
        )
    return Snoozed(delay=UNKNOWN_TASK_DELAY)


def _warning(ctx: RequestContext, row: JobRow) -> Record:
    text = f"task {row.task!r} is not registered in worker {row.worker}; retrying later"
    body = ctx.app.codec.encode({"message": text}, Purpose.EVENT)
    return Record(n=1, type=EventType.WARNING, body=body)
