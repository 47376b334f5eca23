"""Presence records of remote workers, written when they claim jobs."""

from __future__ import annotations

import asyncio
import logging

from windlass.core.errors import StoreError
from windlass.core.versioned_record import Put
from windlass.core.worker_presence import WORKER, LiveWorker
from windlass.server.context import RequestContext
from windlass.server.schemas.worker_api import ClaimRequest

log = logging.getLogger("windlass.server")
REFRESH = 10.0  # seconds between two writes of a worker's presence
MAX_WORKERS = 10_000  # names that the server remembers
PRESENCE_TTL = 60.0  # seconds that a worker is listed as running after a claim


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
        log.warning("Updating worker presence failed: %s: %s", worker.name, error)
