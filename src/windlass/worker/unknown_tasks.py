"""Jobs whose task a worker does not know: another deploy may, so they wait, for a day at most."""

from __future__ import annotations

import json
from typing import ClassVar

from windlass.core.clock import SECOND, Instant
from windlass.core.errors import StoreError
from windlass.core.job.failure import UNKNOWN_TASK
from windlass.core.job.row import JobRow
from windlass.core.records import Put
from windlass.store import DAY, Store

UNKNOWN_TASK_DELAY = 60.0
UNKNOWN_TASK_PATIENCE = DAY


class UnknownTaskError(Exception):
    code: ClassVar[str] = UNKNOWN_TASK


def unknown_task(job: JobRow) -> UnknownTaskError:
    return UnknownTaskError(f"no worker knew the task {job.task!r} for a day")


async def out_of_patience(store: Store, job: JobRow) -> bool:
    """Whether one attempt after the other, for a day, found nobody who knows the task."""
    return job.updated_at - await _unknown_since(store, job) > UNKNOWN_TASK_PATIENCE * SECOND


async def _unknown_since(store: Store, job: JobRow) -> Instant:
    """When that began. The job may be much older: delayed, or run by others until now."""
    key = str(job.id)
    try:
        [entry] = await store.get_records(UNKNOWN_TASK, [key])
        seen = json.loads(entry.value) if entry else None
        since: Instant = job.updated_at
        if seen is not None and seen["attempt"] >= job.attempt - 1:
            since = seen["since"]  # the attempt before this one found the same
        note = json.dumps({"attempt": job.attempt, "since": since}).encode()
        put = Put(kind=UNKNOWN_TASK, key=key, value=note, ttl=2 * DAY)
        await store.put_records([put])
    except StoreError:
        return job.updated_at
    return since
