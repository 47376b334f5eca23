"""Whether the server is well, for probes; what it counts, for Prometheus."""

from __future__ import annotations

import asyncio
import os
import socket

from fastapi import Response, status

from windlass.core.errors import StoreError
from windlass.core.worker_presence import deafness, store_problem
from windlass.server.auth.authenticator import NOBODY
from windlass.server.context import Here, Visit
from windlass.server.metrics import CONTENT_TYPE, exposition
from windlass.server.schemas.overview import Health

PATIENCE = 5.0  # seconds


async def alive(here: Here) -> Health:  # noqa: ARG001 - that it answers is the answer
    """Whether the process answers."""
    return Health(status="ok")


async def ready(here: Here, response: Response) -> Health:
    """Whether the store answers and, where workers run in this process, they take jobs."""
    problems = await _problems(here)
    if problems:
        response.status_code = status.HTTP_503_SERVICE_UNAVAILABLE
    told = None if here.caller is NOBODY else problems  # they may name places
    return Health(status="not ready" if problems else "ready", problems=told)


async def _problems(here: Visit) -> list[str]:
    try:
        async with asyncio.timeout(PATIENCE):
            await here.client.store.ping()
            workers = await here.client.workers() if here.app.hosted else []
    except (StoreError, TimeoutError) as error:
        return [store_problem(error, PATIENCE)]
    host, pid = socket.gethostname(), os.getpid()
    mine = [one for one in workers if (one.host, one.pid) == (host, pid)]
    missing = here.app.hosted - len(mine)
    silent = [f"{missing} of the workers in this process show no sign of life"] * (missing > 0)
    return [*deafness(mine), *silent]


async def metrics(here: Here) -> Response:
    """Queues, workers and streams in the text format of Prometheus."""
    client, hub = here.client, here.site.hub
    text = exposition(await client.queues(), await client.workers(), hub.open, hub.followed)
    return Response(text, media_type=CONTENT_TYPE)
