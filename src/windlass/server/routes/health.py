"""Health checks and metrics."""

from __future__ import annotations

import asyncio
import os
import socket

from fastapi import Response, status

from windlass.core.errors import StoreError
from windlass.core.worker_presence import store_problem, unresponsive_problems
from windlass.server.auth.caller import PUBLIC_CALLER
from windlass.server.context import Ctx, RequestContext
from windlass.server.metrics import CONTENT_TYPE, exposition
from windlass.server.schemas.monitoring import Health

STORE_TIMEOUT = 5.0  # seconds


async def alive(ctx: Ctx) -> Health:  # noqa: ARG001 - any response means alive
    """Check that the process responds (liveness)."""
    return Health(status="ok")


async def ready(ctx: Ctx, response: Response) -> Health:
    """Check that the store responds, and that workers in this process claim jobs (readiness)."""
    problems = await _problems(ctx)
    if problems:
        response.status_code = status.HTTP_503_SERVICE_UNAVAILABLE
    shown = None if ctx.caller is PUBLIC_CALLER else problems  # they may name hosts
    return Health(status="not ready" if problems else "ready", problems=shown)


async def _problems(ctx: RequestContext) -> list[str]:
    try:
        async with asyncio.timeout(STORE_TIMEOUT):
            await ctx.client.store.ping()
            workers = await ctx.client.workers() if ctx.app.running_workers else []
    except (StoreError, TimeoutError) as error:
        return [store_problem(error, STORE_TIMEOUT)]
    host, pid = socket.gethostname(), os.getpid()
    local_workers = [worker for worker in workers if (worker.host, worker.pid) == (host, pid)]
    missing = ctx.app.running_workers - len(local_workers)
    unpublished = [f"{missing} workers of this process have no presence record"] * (missing > 0)
    return [*unresponsive_problems(local_workers), *unpublished]


async def metrics(ctx: Ctx) -> Response:
    """Metrics of queues, workers and streams in the Prometheus text format."""
    client, hub = ctx.client, ctx.server.hub
    text = exposition(
        await client.queues(), await client.workers(), hub.open_streams, hub.followed_jobs
    )
    return Response(text, media_type=CONTENT_TYPE)
