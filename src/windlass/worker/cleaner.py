"""Removes workspaces whose jobs no longer need them.

Waits for: jobs that a sweep has canceled, and once a minute for orphans. Guarantees: the workspace
of an active job stays; what cannot be removed is a warning, never a failure of the job; however
long a deletion takes, no rescue waits for it. Stops: when cancelled. A crash leaves directories
behind, which the search for orphans, of any worker on this host, removes when they are old.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace
from uuid import UUID

from windlass.core.errors import WindlassError
from windlass.core.job import JobRow
from windlass.core.query import Query
from windlass.core.state import ACTIVE
from windlass.store import Store
from windlass.workspace import Found, Workspaces

log = logging.getLogger("windlass.worker")
BATCH = 500
ORPHANS_EVERY = 60.0  # seconds


class Cleaner:
    def __init__(self, store: Store, workspaces: Workspaces | None) -> None:
        self._store = store
        self._workspaces = workspaces
        self._wanted: asyncio.Queue[JobRow] = asyncio.Queue()

    async def run(self) -> None:
        clock = asyncio.get_running_loop().time
        orphans_at = clock()
        while self._workspaces is not None:
            try:
                if clock() >= orphans_at:
                    orphans_at = clock() + ORPHANS_EVERY
                    await self.orphans()
                await self.next(orphans_at - clock())
            except (WindlassError, OSError) as error:
                log.warning("cleaning up failed, trying again: %s", error)
            except Exception:
                log.exception("cleaning up failed, trying again")

    def later(self, job: JobRow) -> None:
        """Its worker died before it could; on another host, the search for orphans does it."""
        self._wanted.put_nowait(job)

    async def next(self, timeout: float) -> None:
        """Wait for a job that is to be cleaned up, and do it."""
        try:
            job = await asyncio.wait_for(self._wanted.get(), timeout)
        except TimeoutError:
            return
        for warning in await self.remove(job):
            log.warning("%s", warning)

    async def remove(self, job: JobRow) -> list[str]:
        """Remove what the job's lineage has here; answers what went wrong."""
        if self._workspaces is None:
            return []
        try:
            return await asyncio.to_thread(self._workspaces.remove, job.lineage)
        except (OSError, WindlassError) as error:
            return [f"the workspace of job {job.id} was not removed: {error}"]

    async def orphans(self) -> int:
        """Remove what is old and belongs to no active job; answers how many directories."""
        if self._workspaces is None:
            return 0
        found = await asyncio.to_thread(self._workspaces.list, time.time())
        old = [place for place in found if place.old]
        gone = 0
        for start in range(0, len(old), BATCH):
            gone += await self._judge(self._workspaces, old[start : start + BATCH])
        return gone

    async def _judge(self, workspaces: Workspaces, places: list[Found]) -> int:
        rows = await self._store.get([place.lineage for place in places])
        gone = 0
        for place, row in zip(places, rows, strict=True):
            if await self._active(place.lineage, row):
                continue
            for warning in await asyncio.to_thread(workspaces.remove, place.lineage, (place.kind,)):
                log.warning("%s", warning)
            gone += 1
        return gone

    async def _active(self, lineage: UUID, first: JobRow | None) -> bool:
        """Whether the first job or one of its retries, at any remove, is still to end."""
        if first is not None and not first.final:
            return True
        query: Query | None = Query(root_id=lineage, states=ACTIVE, limit=1)
        while query is not None:
            page = await self._store.find(query)
            if page.rows:
                return True
            query = replace(query, cursor=page.cursor) if page.cursor else None
        return False
