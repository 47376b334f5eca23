"""Removes workspaces whose jobs no longer need them.

Waits for: jobs that a sweep has canceled, and its interval, to look for what else can go: the
directories of jobs that were canceled between two attempts, and old ones that nobody needs.
Guarantees: the workspace of an active job stays, that of a failed one until it is old; what cannot
be removed is a warning, never a failure of the job; however long a deletion takes, no rescue waits
for it. Stops: when cancelled. A crash leaves directories behind, for the next look of any worker on
this host.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import replace
from uuid import UUID

from windlass.core.errors import WindlassError
from windlass.core.job.row import JobRow
from windlass.core.job.state import ACTIVE, State
from windlass.core.query.job_query import Query
from windlass.store import Store
from windlass.worker.loops.outage_log import Trouble
from windlass.workspace import Found, Workspaces

log = logging.getLogger("windlass.worker")
BATCH = 500
_OVER = frozenset({State.SUCCEEDED, State.CANCELED})


class Cleaner:
    def __init__(self, store: Store, workspaces: Workspaces | None) -> None:
        self._store = store
        self._workspaces = workspaces
        self._wanted: asyncio.Queue[JobRow] = asyncio.Queue()
        self._failed: set[UUID] = set()  # lineages not worth a look before they are old

    async def run(self, interval: float) -> None:
        clock = asyncio.get_running_loop().time
        look_at = clock()
        trouble = Trouble("cleaning up")
        while self._workspaces is not None:
            try:
                if clock() >= look_at:
                    look_at = clock() + interval
                    await self.orphans()
                await self.next(look_at - clock())
                trouble.over()
            except (WindlassError, OSError) as error:
                trouble.met(error)
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
        """Remove what belongs to no active job and is over or old; answers how many directories."""
        if self._workspaces is None:
            return 0
        found = await asyncio.to_thread(self._workspaces.list, time.time())
        self._failed &= {place.lineage for place in found}
        asked = [place for place in found if place.old or place.lineage not in self._failed]
        gone = 0
        for start in range(0, len(asked), BATCH):
            gone += await self._judge(self._workspaces, asked[start : start + BATCH])
        return gone

    async def _judge(self, workspaces: Workspaces, places: list[Found]) -> int:
        rows = await self._store.get([place.lineage for place in places])
        gone = 0
        for place, row in zip(places, rows, strict=True):
            if not place.old and (row is None or row.state not in _OVER):
                if row is not None and row.state is State.FAILED:
                    self._failed.add(place.lineage)
                continue
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
