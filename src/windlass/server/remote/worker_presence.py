"""Workers elsewhere, shown to others as those here are; and jobs that they do not know."""

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
from windlass.core.records import Put
from windlass.core.worker_presence import WORKER, LiveWorker
from windlass.server.context import Visit
from windlass.server.schemas.worker import ClaimAsked
from windlass.worker.executor import describe
from windlass.worker.unknown_tasks import UNKNOWN_TASK_DELAY, out_of_patience, unknown_task

log = logging.getLogger("windlass.server")
REFRESH = 10.0  # seconds between two writes
MANY = 10_000  # names to be remembered
SHOWN = 60.0  # seconds for which a worker counts as alive after a claim


async def show(here: Visit, asked: ClaimAsked) -> None:
    """A worker that asks for jobs is alive, and takes what it says; written down now and then."""
    shown, at = here.site.shown, asyncio.get_running_loop().time()
    if at - shown.get(asked.worker, -REFRESH) < REFRESH:
        return
    if len(shown) > MANY:
        shown.clear()
    shown[asked.worker] = at
    store = here.client.store
    now = await store.ping()
    card = LiveWorker(
        name=asked.worker,
        host=here.caller.name,
        pid=0,
        version="http",
        queues=dict(asked.queues),
        tasks=tuple(asked.tasks),
        started_at=now,
        seen_at=now,
        last_claim_at=now,
        free=sum(asked.queues.values()),
    )
    try:
        await store.put_records([Put(kind=WORKER, key=card.name, value=card.encode(), ttl=SHOWN)])
    except StoreError as error:
        log.warning("worker %s cannot be shown to others for now: %s", card.name, error)


async def turn_away(here: Visit, rows: Sequence[JobRow], tasks: frozenset[str]) -> list[JobRow]:
    """Those whose tasks the worker knows; the others wait for a worker that does."""
    known = [row for row in rows if row.task in tasks]
    wishes = [
        settle(
            row,
            await _unknown(here, row),
            random=random.random,
            records=[_warning(here, row)],
        )
        for row in rows
        if row.task not in tasks
    ]
    await here.client.store.apply(wishes)
    return known


async def _unknown(here: Visit, row: JobRow) -> Outcome:
    if await out_of_patience(here.client.store, row):
        return Failed(failure=describe(unknown_task(row), here.app.codec, terminal=True))
    return Snoozed(delay=UNKNOWN_TASK_DELAY)


def _warning(here: Visit, row: JobRow) -> Record:
    said = {"message": f"worker {row.worker} does not know the task {row.task!r}"}
    body = here.app.codec.encode(said, Purpose.EVENT)
    return Record(n=1, type=EventType.WARNING, body=body)
