"""Short words for what nearly every test needs."""

from __future__ import annotations

from typing import Any

from windlass.core.failure import ErrorKind, Failure
from windlass.core.ids import uuid7
from windlass.core.job import JobRow, NewJob
from windlass.core.lease import Claim
from windlass.store import Store


def make_job(**values: Any) -> NewJob:
    """A job with a fresh id; name only what matters to the test."""
    return NewJob(**{"id": uuid7(), "task": "test.noop", **values})


def make_failure(code: str = "ValueError", *, terminal: bool = False, **values: Any) -> Failure:
    kind = ErrorKind.TERMINAL if terminal else ErrorKind.RETRYABLE
    return Failure(code=code, kind=kind, **values)


async def claim_all(
    store: Store,
    *queues: str,
    limit: int = 100,
    worker: str = "worker-1",
    lease: float | None = None,
) -> list[JobRow]:
    """Claim up to `limit` from each queue (the default one if none is named), with a new token."""
    wanted = [(queue, limit) for queue in queues or ("default",)]
    return await store.claim(Claim(token=uuid7(), worker=worker, queues=wanted, lease=lease))
