"""Jobs whose task is not registered in a worker.

A newer deploy may have the task, so such a job is snoozed, for a day at most.
"""

from __future__ import annotations

import json
from typing import ClassVar

from windlass.core.clock import SECOND, Instant
from windlass.core.errors import StoreError
from windlass.core.job.failure import UNKNOWN_TASK
from windlass.core.job.row import JobRow
from windlass.core.versioned_record import Put
from windlass.store import DAY, Store

UNKNOWN_TASK_DELAY = 60.0
UNKNOWN_TASK_LIMIT = DAY


class UnknownTaskError(Exception):
    code: ClassVar[str] = UNKNOWN_TASK


def unknown_task_error(job: JobRow) -> UnknownTaskError:
    return UnknownTaskError(
        f"no worker had the task {job.task!r} for a day; is it defined in a deployed app?"
    )


async def unknown_too_long(store: Store, job: JobRow) -> bool:
    """Whether no worker that ran the job in the last day had its task. Stores since when."""
    return job.updated_at - await _unknown_since(store, job) > UNKNOWN_TASK_LIMIT * SECOND


async def _unknown_since(store: Store, job: JobRow) -> Instant:
    """Return when the first of these attempts ran.

    The job may be much older: it was delayed, or other workers ran it before.
    """
    key = str(job.id)
    try:
        [entry] = await store.get_records(UNKNOWN_TASK, [key])
        record = json.loads(entry.value) if entry else None
        since: Instant = job.updated_at
        if record is not None and record["attempt"] >= job.attempt - 1:
            since = record["since"]  # the previous attempt had the same result
        value = json.dumps({"attempt": job.attempt, "since": since}).encode()
        put = Put(kind=UNKNOWN_TASK, key=key, value=value, ttl=2 * DAY)
        await store.put_records([put])
    except StoreError:
        return job.updated_at
    return since
