"""Enqueue of jobs that can conflict with others: request ids, unique keys, retries, parents.

The jobs of a call are decided one after the other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import TypeVar
from uuid import UUID

from windlass.core.decisions import decide
from windlass.core.decisions.enqueue import (
    Conflicts,
    EnqueueDecision,
    EnqueueResult,
    EnqueueStatus,
    cancel_displaced,
    decide_enqueue,
)
from windlass.core.job import row as jobs
from windlass.core.job.dependency import Parent
from windlass.core.job.new_job import NewJob
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.stores.postgres import rows
from windlass.stores.postgres.connection import Connection
from windlass.stores.postgres.errors import ConcurrentChange
from windlass.stores.postgres.queries import SQL
from windlass.stores.postgres.reads import jobs_by_id
from windlass.stores.postgres.writes.batch import Edge, PostgresBatch
from windlass.stores.postgres.writes.inserts import insert, result_of

K = TypeVar("K")


def _set_active(holders: dict[K, JobRow], key: K, row: JobRow) -> None:
    """Make an active job the holder of a key; remove a finished one."""
    if not row.final:
        holders[key] = row
    elif key in holders and holders[key].id == row.id:
        del holders[key]


class KeyedEnqueue:
    """Decides about jobs in order, each with those before it as conflicts; writes in batches."""

    def __init__(self, connection: Connection, batch: PostgresBatch) -> None:
        self._connection = connection
        self._batch = batch
        self._ids: dict[UUID, JobRow] = {}
        self._requests: dict[tuple[str, str], JobRow] = {}
        self._keys: dict[tuple[str, str, str], JobRow] = {}
        self._retries: dict[UUID, JobRow] = {}  # the active job of each lineage
        # Decided, not yet written.
        self._pending: list[tuple[JobRow, NewJob, JobRow | None, EnqueueDecision]] = []
        self._stored: dict[UUID, JobRow] = {}  # rows of this call, as stored
        self._new_ids: set[UUID] = set()  # jobs created by this call
        self._parent_ids: set[UUID] = set()

    async def load_conflicts(self, requested: Sequence[NewJob]) -> None:
        """Read all possible conflicts; lock those that a debounced job may displace."""
        fetch = self._connection.fetch
        origins = [new.retry_of for new in requested if new.retry_of is not None]
        self._ids |= await jobs_by_id(
            self._connection, chain((new.id for new in requested), origins)
        )
        requests = {(new.owner, new.request_id) for new in requested if new.request_id is not None}
        if requests:
            for record in await fetch(SQL.jobs_by_request, *rows.columns(requests)):
                self._remember(rows.job_row(record))
        keys = {(n.owner, n.task, n.unique_key) for n in requested if n.unique_key is not None}
        if keys:
            for record in await fetch(SQL.active_by_key, *rows.columns(keys)):
                self._remember(rows.job_row(record))
            await self._lock_waiting(requested)
        lineages = {self._ids[origin].lineage for origin in origins if origin in self._ids}
        if lineages:
            for record in await fetch(SQL.active_of_lineage, sorted(lineages)):
                self._remember(rows.job_row(record))
        # Last: the locks above may wait, these skip rows that another transaction has locked.
        self._parent_ids = {id_ for new in requested for id_ in new.depends_on}
        await self._batch.load(self._parent_ids)

    async def _lock_waiting(self, requested: Sequence[NewJob]) -> None:
        """Lock jobs that may be displaced, but no running job: its worker needs the row."""
        keys = {(new.owner, new.task, new.unique_key) for new in requested if new.debounce}
        conflicts = [row for key, row in self._keys.items() if key in keys]
        waiting = [row.id for row in conflicts if row.state is not State.RUNNING]
        if waiting:
            await self._batch.load_ending(waiting)
            for row in (await jobs_by_id(self._connection, waiting)).values():
                self._remember(row)

    def _remember(self, row: JobRow) -> None:
        self._ids[row.id] = row
        if row.request_id is not None:
            self._requests[row.owner, row.request_id] = row
        if row.unique_key is not None:
            _set_active(self._keys, (row.owner, row.task, row.unique_key), row)
        if row.root_id is not None:
            _set_active(self._retries, row.root_id, row)

    def conflicts(self, new: NewJob) -> Conflicts:
        request, key = new.request_id, new.unique_key
        origin = self._ids.get(new.retry_of) if new.retry_of is not None else None
        return Conflicts(
            same_id=self._ids.get(new.id),
            same_request=None if request is None else self._requests.get((new.owner, request)),
            same_key=None if key is None else self._keys.get((new.owner, new.task, key)),
            origin=origin,
            active_retry=None if origin is None else self._retries.get(origin.lineage),
            parents=self._parents(new.depends_on),
        )

    def _parents(self, ids: Sequence[UUID]) -> dict[UUID, Parent]:
        """Return the parents that are locked, or were created by this call."""
        seen: dict[UUID, Parent] = {}
        for id_ in ids:
            loaded = self._batch.find(id_)
            if loaded is not None:
                seen[id_] = Parent(id_, loaded.owner, loaded.row.state)
            elif id_ in self._new_ids:
                row = self._ids[id_]
                seen[id_] = Parent(id_, row.owner, row.state)
        return seen

    async def enqueue(self, requested: Sequence[NewJob]) -> list[EnqueueResult]:
        """Enqueue valid jobs, in order."""
        results: list[EnqueueResult | None] = []
        for new in requested:
            conflicts = self.conflicts(new)
            decision = decide_enqueue(new, conflicts)
            if decision.status is not EnqueueStatus.CREATED or decision.existing is not None:
                await self._flush()
                existing = decision.existing and self._ids[decision.existing.id]
                results.append(result_of(new, replace(decision, existing=existing)))
                continue
            if decision.displace is not None:
                await self._displace(decision.displace)
                # The new job may depend on a job that the displacement ended.
                decision = decide_enqueue(new, self.conflicts(new))
            origin = conflicts.origin if new.retry_of is not None else None
            root = origin.lineage if origin else None
            row = jobs.new_row(new, self._batch.now, 0, root, decision.waiting_for)
            if origin is not None and new.resume:
                row = replace(row, last_step=origin.last_step)
            self._pending.append((row, new, origin, decision))
            self._new_ids.add(row.id)
            self._remember(row)
            results.append(None)
            if decision.failed_parent is not None:
                await self._end_with_parent(row.id, decision.failed_parent)
        await self._flush()
        return [
            EnqueueResult(EnqueueStatus.CREATED, new, existing=self._stored[new.id])
            if result is None
            else result
            for new, result in zip(requested, results, strict=True)
        ]

    async def refresh(self, results: Sequence[EnqueueResult]) -> list[EnqueueResult]:
        """Read the rows again if gates may have admitted some of the jobs."""
        if not self._batch.gates_marked:
            return list(results)
        ids = {result.existing.id for result in results if result.existing is not None}
        found = await jobs_by_id(self._connection, ids)
        return [
            result
            if result.existing is None
            else replace(result, existing=found.get(result.existing.id, result.existing))
            for result in results
        ]

    async def _end_with_parent(self, job_id: UUID, parent: Parent) -> None:
        """End a new job whose parent had failed or was canceled."""
        await self._flush()
        await self._batch.load([job_id])
        loaded = self._batch.find(job_id)
        assert loaded is not None
        ended = decide.parent_ended(loaded.row, parent.id, parent.state, self._batch.now)
        self._batch.write(loaded, ended)
        await self._batch.flush()
        for row in (await jobs_by_id(self._connection, [job_id])).values():
            self._stored[job_id] = row
            self._remember(row)

    async def _displace(self, row: JobRow) -> None:
        """Cancel a waiting job that was locked by `load_conflicts` or created by this call."""
        await self._flush()
        await self._batch.load_ending([row.id])
        loaded = self._batch.find(row.id)
        if loaded is None or loaded.row.state is State.RUNNING:
            raise ConcurrentChange
        self._batch.write(loaded, decide.cancel(loaded.row, cancel_displaced(row), self._batch.now))
        await self._batch.flush()
        for fresh in (await jobs_by_id(self._connection, [row.id])).values():
            self._remember(fresh)
        await self._batch.load(self._parent_ids)  # `flush` unloads jobs that it queued

    async def _flush(self) -> None:
        """Write the decided jobs, with their keys, edges, and the checkpoints of retries."""
        pending, self._pending = self._pending, []
        if not pending:
            return
        connection = self._connection
        params = [
            rows.insert_params(new, row.root_id, row.last_step, row.waiting_for)
            for row, new, *_ in pending
        ]
        inserted = await insert(connection, params, self._batch.now, gated=True)
        if len(inserted) < len(pending):
            raise ConcurrentChange
        for row, new, origin, _ in pending:
            n, job = inserted[row.id].serial, inserted[row.id]
            stored = replace(row, serial=n, position=job.position, gates=job.gates)
            if job.gates:
                self._batch.mark_gates(job.gates)
            self._stored[row.id] = stored
            self._remember(stored)
            if origin is not None:
                await connection.execute(SQL.set_retried_as, origin.serial, row.id)
                self._remember(replace(self._ids[origin.id], retried_as=row.id))
                if new.resume:
                    await connection.execute(SQL.copy_steps, n, origin.serial)
        keys = [
            (row.owner, row.task, row.unique_key, inserted[row.id].serial)
            for row, *_ in pending
            if row.unique_key is not None
        ]
        if keys:
            await connection.execute(SQL.insert_keys, *rows.columns(keys))
        await self._link(pending)
        self._batch.work = True

    async def _link(
        self, pending: Sequence[tuple[JobRow, NewJob, JobRow | None, EnqueueDecision]]
    ) -> None:
        edges: list[Edge] = []
        for row, new, _, decision in pending:
            child, waits_for = self._stored[row.id].serial, set(decision.waits_for)
            for index, parent in enumerate(new.depends_on):
                loaded = self._batch.find(parent)
                n = loaded.n if loaded is not None else self._stored[parent].serial
                edges.append((child, row.id, n, parent, index, parent in waits_for))
        if edges:
            await self._batch.link(edges)
