"""Lease extension, with retries for jobs that an open transaction has locked.

A success in a task's own transaction locks the job until the commit. The other leases of the worker
are extended meanwhile. The locked one is returned unchanged, and retried.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from windlass.core.clock import SECOND, Instant
from windlass.core.errors import StoreError
from windlass.core.job.lease import ExtendResult, Lease
from windlass.stores.postgres import rows
from windlass.stores.postgres.connection import Connection, Row
from windlass.stores.postgres.engine import PostgresEngine
from windlass.stores.postgres.queries import SQL

RETRY_INTERVAL = 0.25  # seconds between two tries of locked leases
MIN_TIMEOUT = 1.0  # seconds that an extension may take, even for a short lease


async def extend(
    connection: Connection,
    leases: Sequence[Lease],
    seconds: float,
    now: Instant | None,
    timeout: float,
) -> tuple[list[ExtendResult], list[Lease]]:
    """Return one result per lease, and the leases that were locked and so not extended."""
    requested = sorted({(lease.job_id, lease.fence, lease.token) for lease in leases})
    length = round(seconds * SECOND)
    found = await connection.fetch(
        SQL.extend, now, length, *rows.columns(requested), timeout=timeout
    )
    results = _by_lease(found)
    missing = [lease for lease in requested if Lease(*lease) not in results]
    locked: dict[Lease, ExtendResult] = {}
    if missing:
        locked = _by_lease(
            await connection.fetch(SQL.locked_leases, *rows.columns(missing), timeout=timeout)
        )
        results |= locked
    return [results.get(lease) or ExtendResult(lease_until=None) for lease in leases], list(locked)


def _by_lease(found: Sequence[Row]) -> dict[Lease, ExtendResult]:
    return {
        Lease(job_id, fence, token): ExtendResult(lease_until=until, cancel_requested=canceled)
        for job_id, fence, token, until, canceled in found
    }


class LeaseExtender:
    """Extends leases, and retries those whose job was locked.

    Waits for: the next try. Guarantees: a lease is extended soon after its job is unlocked, even if
    it expired meanwhile, unless another worker claimed the job. Stops: for each lease when it is
    extended or lost, and when closed. Tries end after the length of the lease: its keeper has
    extended it again by then. After a crash the leases expire.
    """

    def __init__(self, engine: PostgresEngine) -> None:
        self._engine = engine
        # By lease: its length in seconds, and the time of the last try.
        self._locked: dict[Lease, tuple[float, float]] = {}
        self._task: asyncio.Task[None] | None = None

    async def extend(self, leases: Sequence[Lease], seconds: float) -> list[ExtendResult]:
        results, locked = await self._try(leases, seconds)
        if locked:
            loop = asyncio.get_running_loop()
            self._locked |= dict.fromkeys(locked, (seconds, loop.time() + seconds))
            if self._task is None:
                self._task = loop.create_task(self._retry_locked())
        return results

    async def _try(
        self, leases: Sequence[Lease], seconds: float
    ) -> tuple[list[ExtendResult], list[Lease]]:
        engine = self._engine
        # A dead connection must time out early enough for further tries.
        timeout = min(engine.config.timeout, max(MIN_TIMEOUT, seconds / 6))
        return await engine.call(lambda c: extend(c, leases, seconds, engine.now(), timeout))

    async def _retry_locked(self) -> None:
        clock = asyncio.get_running_loop().time
        try:
            while self._locked:
                await asyncio.sleep(RETRY_INTERVAL)
                for seconds in {length for length, _ in self._locked.values()}:
                    group = [
                        lease for lease, (length, _) in self._locked.items() if length == seconds
                    ]
                    with contextlib.suppress(StoreError):
                        _, locked = await self._try(group, seconds)
                        for lease in set(group).difference(locked):
                            self._locked.pop(lease, None)
                self._locked = {
                    lease: retry for lease, retry in self._locked.items() if retry[1] > clock()
                }
        finally:
            self._task = None

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
