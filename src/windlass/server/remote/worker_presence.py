"""Presence of remote workers, and jobs whose task a remote worker does not have."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Sequence

from windlass.core.codec import Purpose
from windlass.core.decisions.outcome import Failed, Outcome, Snoozed, settle
from windlass.core.errors import StoreError
from windlass.core.event import EventType, Record
from windlass.core.job.row import JobRow
from windlass.core.versioned_record import Put
from windlass.core.worker_presence import WORKER, LiveWorker
from windlass.server.context import RequestContext
from windlass.server.schemas.worker import ClaimRequest
from windlass.worker.executor import failure_from_error
from windlass.worker.unknown_tasks import UNKNOWN_TASK_DELAY, unknown_task_error, unknown_too_long

log = logging.getLogger("windlass.server")
REFRESH = 10.0  # seconds between two writes of a worker's presence
MAX_WORKERS = 10_000  # names that the server remembers
PRESENCE_TTL = 60.0  # seconds that a worker counts as alive after a claim


async def publish(ctx: RequestContext, claim: ClaimRequest) -> None:
    """Store the presence of a worker that claims jobs, at most every `REFRESH` seconds."""
    seen, at = ctx.server.workers_seen, asyncio.get_running_loop().time()
    if at - seen.get(claim.worker, -REFRESH) < REFRESH:
        return
    if len(seen) > MAX_WORKERS:
        seen.clear()
    seen[claim.worker] = at
    store = ctx.client.store
    now = await store.ping()
    worker = LiveWorker(
        name=claim.worker,
        host=ctx.caller.name,
        pid=0,
        version="http",
        queues=dict(claim.queues),
        tasks=tuple(claim.tasks),
        started_at=now,
        seen_at=now,
        last_claim_at=now,
        free=sum(claim.queues.values()),
    )
    put = Put(kind=WORKER, key=worker.name, value=worker.encode(), ttl=PRESENCE_TTL)
    try:
        await store.put_records([put])
    except StoreError as error:
        log.warning("updating the presence record of worker %s failed: %s", worker.name, error)


async def return_unknown(
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
