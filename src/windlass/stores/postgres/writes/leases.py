"""Extending leases, though somebody's open transaction may hold one of the jobs.

An attempt's success in a transaction of the task's own locks the row until the commit. The other
leases of the worker are extended meanwhile; this one is answered as it stands, and tried again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence

from windlass.core.clock import SECOND, Instant
from windlass.core.errors import StoreError
from windlass.core.job.lease import Extended, Lease
from windlass.stores.postgres import rows
from windlass.stores.postgres.connection import Connection, Row
from windlass.stores.postgres.engine import Engine
from windlass.stores.postgres.queries import SQL

APART = 0.25  # seconds between two tries of what was held
QUICKEST = 1.0  # seconds that an extension may take, however short the lease is


async def extend(
    connection: Connection,
    leases: Sequence[Lease],
    seconds: float,
    now: Instant | None,
    timeout: float,
) -> tuple[list[Extended], list[Lease]]:
    """One answer per lease; and which are held, and so answered as they were."""
    wanted = sorted({(lease.job_id, lease.fence, lease.token) for lease in leases})
    length = round(seconds * SECOND)
    found = await connection.fetch(SQL.extend, now, length, *rows.columns(wanted), timeout=timeout)
    lasts = _by_lease(found)
    rest = [lease for lease in wanted if Lease(*lease) not in lasts]
    held: dict[Lease, Extended] = {}
    if rest:
        held = _by_lease(
            await connection.fetch(SQL.held_leases, *rows.columns(rest), timeout=timeout)
        )
        lasts |= held
    return [lasts.get(lease) or Extended(lease_until=None) for lease in leases], list(held)


def _by_lease(found: Sequence[Row]) -> dict[Lease, Extended]:
    return {
        Lease(job_id, fence, token): Extended(lease_until=until, cancel_requested=canceled)
        for job_id, fence, token, until, canceled in found
    }


class Leases:
    """Extends, and insists where a job was held.

    Waits for: the next try. Guarantees: a lease whose job is let go of is extended soon after,
    even if it ran out meanwhile, unless somebody took it first. Stops: for each lease when that is
    done or it is lost, at the latest after its own length, in which its keeper asked again; and
    when closed. A crash leaves it to run out.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._held: dict[Lease, tuple[float, float]] = {}  # its length, and until when we try
        self._task: asyncio.Task[None] | None = None

    async def extend(self, leases: Sequence[Lease], seconds: float) -> list[Extended]:
        answers, held = await self._try(leases, seconds)
        if held:
            loop = asyncio.get_running_loop()
            self._held |= dict.fromkeys(held, (seconds, loop.time() + seconds))
            if self._task is None:
                self._task = loop.create_task(self._insist())
        return answers

    async def _try(
        self, leases: Sequence[Lease], seconds: float
    ) -> tuple[list[Extended], list[Lease]]:
        engine = self._engine
        # A dead connection must be given up in time for further tries.
        timeout = min(engine.config.timeout, max(QUICKEST, seconds / 6))
        return await engine.call(lambda c: extend(c, leases, seconds, engine.now(), timeout))

    async def _insist(self) -> None:
        clock = asyncio.get_running_loop().time
        try:
            while self._held:
                await asyncio.sleep(APART)
                for seconds in {length for length, _ in self._held.values()}:
                    group = [it for it, (length, _) in self._held.items() if length == seconds]
                    with contextlib.suppress(StoreError):
                        _, held = await self._try(group, seconds)
                        for lease in set(group).difference(held):
                            self._held.pop(lease, None)
                self._held = {it: put for it, put in self._held.items() if put[1] > clock()}
        finally:
            self._task = None

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
