"""Removes workspaces whose jobs no longer need them.

Waits for: jobs that a sweep has canceled. At each interval, searches for orphans: workspaces of
jobs canceled between two attempts, and old workspaces that no job needs. Guarantees: the workspace
of an active job stays; the workspace of a failed job stays until it is old (24 h; proxies: 48 h).
A failed deletion is a warning and never fails a job. Deletions never delay rescues, however long
they take. Stops: when cancelled. A crash leaves directories behind for the next search of any
worker on this host.
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
from windlass.core.query.job_query import JobQuery
from windlass.store import Store
from windlass.worker.loops.outage_log import OutageLog
from windlass.workspace import FoundWorkspace, Workspaces

log = logging.getLogger("windlass.worker")
BATCH = 500
_FINISHED = frozenset({State.SUCCEEDED, State.CANCELED})


class WorkspaceCleaner:
    def __init__(self, store: Store, workspaces: Workspaces | None) -> None:
        self._store = store
        self._workspaces = workspaces
        self._queue: asyncio.Queue[JobRow] = asyncio.Queue()
        self._failed: set[UUID] = set()  # failed lineages, skipped until they are old

    async def run(self, interval: float) -> None:
        clock = asyncio.get_running_loop().time
        next_check_at = clock()
        outages = OutageLog("Cleaning up workspaces")
        while self._workspaces is not None:
            try:
                if clock() >= next_check_at:
                    next_check_at = clock() + interval
                    await self.remove_orphans()
                await self.remove_next(next_check_at - clock())
                outages.succeeded()
            except (WindlassError, OSError) as error:
                outages.failed(error)
            except Exception:
                log.exception("Cleaning up workspaces failed; retrying")

    def enqueue(self, job: JobRow) -> None:
        """Queue the job of a dead worker. If that was another host, its orphan search cleans up."""
        self._queue.put_nowait(job)

    async def remove_next(self, timeout: float) -> None:
        """Wait for a job to clean up, and remove its workspace."""
        try:
            job = await asyncio.wait_for(self._queue.get(), timeout)
        except TimeoutError:
            return
        for warning in await self.remove(job):
            log.warning("%s", warning)

    async def remove(self, job: JobRow) -> list[str]:
        """Remove the workspaces of the job's lineage on this host; return warnings."""
        if self._workspaces is None:
            return []
        try:
            return await asyncio.to_thread(self._workspaces.remove, job.lineage)
        except (OSError, WindlassError) as error:
            return [f"the workspace of job {job.id} was not removed: {error}"]

    async def remove_orphans(self) -> int:
        """Remove workspaces of finished or old lineages without active jobs; return the count."""
        if self._workspaces is None:
            return 0
        found = await asyncio.to_thread(self._workspaces.list, time.time())
        self._failed &= {workspace.lineage for workspace in found}
        candidates = [
            workspace
            for workspace in found
            if workspace.old or workspace.lineage not in self._failed
        ]
        removed = 0
        for start in range(0, len(candidates), BATCH):
            removed += await self._remove_batch(self._workspaces, candidates[start : start + BATCH])
        return removed

    async def _remove_batch(self, workspaces: Workspaces, found: list[FoundWorkspace]) -> int:
        rows = await self._store.get([workspace.lineage for workspace in found])
        removed = 0
        for workspace, row in zip(found, rows, strict=True):
            if not workspace.old and (row is None or row.state not in _FINISHED):
                if row is not None and row.state is State.FAILED:
                    self._failed.add(workspace.lineage)
                continue
            if await self._lineage_active(workspace.lineage, row):
                continue
            for warning in await asyncio.to_thread(
                workspaces.remove, workspace.lineage, (workspace.kind,)
            ):
                log.warning("%s", warning)
            removed += 1
        return removed

    async def _lineage_active(self, lineage: UUID, first: JobRow | None) -> bool:
        """Whether the first job of the lineage or any of its retries is active."""
        if first is not None and not first.final:
            return True
        query: JobQuery | None = JobQuery(root_id=lineage, states=ACTIVE, limit=1)
        while query is not None:
            page = await self._store.find(query)
            if page.rows:
                return True
            query = replace(query, cursor=page.cursor) if page.cursor else None
        return False
