"""Jobs that may meet others, admitted one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import TypeVar
from uuid import UUID

from windlass.core.decisions import decide
from windlass.core.decisions.enqueue import (
    Admission,
    Enqueued,
    EnqueueStatus,
    Rivals,
    admit,
    give_way,
)
from windlass.core.job import row as jobs
from windlass.core.job.dependency import Parent
from windlass.core.job.row import JobRow, NewJob
from windlass.core.job.state import State
from windlass.stores.postgres import rows
from windlass.stores.postgres.connection import Connection
from windlass.stores.postgres.errors import Overtaken
from windlass.stores.postgres.queries import SQL
from windlass.stores.postgres.writes.batch import Batch, Edge
from windlass.stores.postgres.writes.inserts import answer_of, by_id, insert

K = TypeVar("K")


def _hold(places: dict[K, JobRow], place: K, row: JobRow) -> None:
    """An active job has this place to itself; one that ended leaves it."""
    if not row.final:
        places[place] = row
    elif place in places and places[place].id == row.id:
        del places[place]


class Desk:
    """Admits jobs one after the other, each meeting those before it, and writes them in runs."""

    def __init__(self, connection: Connection, batch: Batch) -> None:
        self._connection = connection
        self._batch = batch
        self._ids: dict[UUID, JobRow] = {}
        self._requests: dict[tuple[str, str], JobRow] = {}
        self._keys: dict[tuple[str, str, str], JobRow] = {}
        self._retries: dict[UUID, JobRow] = {}  # the active job of each lineage
        # Admitted, not yet written.
        self._run: list[tuple[JobRow, NewJob, JobRow | None, Admission]] = []
        self._stored: dict[UUID, JobRow] = {}  # as they came to be
        self._fresh: set[UUID] = set()  # jobs that were not there before this call
        self._parents_named: set[UUID] = set()

    async def look_up(self, wanted: Sequence[NewJob]) -> None:
        """Read every job that these could meet; those that may have to give way are locked."""
        fetch = self._connection.fetch
        origins = [new.retry_of for new in wanted if new.retry_of is not None]
        self._ids |= await by_id(self._connection, chain((new.id for new in wanted), origins))
        requests = {(new.owner, new.request_id) for new in wanted if new.request_id is not None}
        if requests:
            for record in await fetch(SQL.jobs_by_request, *rows.columns(requests)):
                self._remember(rows.job_row(record))
        keys = {(n.owner, n.task, n.unique_key) for n in wanted if n.unique_key is not None}
        if keys:
            for record in await fetch(SQL.active_by_key, *rows.columns(keys)):
                self._remember(rows.job_row(record))
            await self._lock_waiting(wanted)
        lineages = {self._ids[origin].lineage for origin in origins if origin in self._ids}
        if lineages:
            for record in await fetch(SQL.active_of_lineage, sorted(lineages)):
                self._remember(rows.job_row(record))
        # After those that may have to be waited for: these are left out if somebody has them.
        self._parents_named = {id_ for new in wanted for id_ in new.depends_on}
        await self._batch.load(self._parents_named)

    async def _lock_waiting(self, wanted: Sequence[NewJob]) -> None:
        """Those that may have to give way. One that runs does not: its worker needs the row."""
        places = {(new.owner, new.task, new.unique_key) for new in wanted if new.debounce}
        rivals = [row for place, row in self._keys.items() if place in places]
        waiting = [row.id for row in rivals if row.state is not State.RUNNING]
        if waiting:
            await self._batch.lose(waiting)
            for row in (await by_id(self._connection, waiting)).values():
                self._remember(row)

    def _remember(self, row: JobRow) -> None:
        self._ids[row.id] = row
        if row.request_id is not None:
            self._requests[row.owner, row.request_id] = row
        if row.unique_key is not None:
            _hold(self._keys, (row.owner, row.task, row.unique_key), row)
        if row.root_id is not None:
            _hold(self._retries, row.root_id, row)

    def rivals(self, new: NewJob) -> Rivals:
        request, key = new.request_id, new.unique_key
        origin = self._ids.get(new.retry_of) if new.retry_of is not None else None
        return Rivals(
            same_id=self._ids.get(new.id),
            same_request=None if request is None else self._requests.get((new.owner, request)),
            same_key=None if key is None else self._keys.get((new.owner, new.task, key)),
            origin=origin,
            active_retry=None if origin is None else self._retries.get(origin.lineage),
            parents=self._parents(new.depends_on),
        )

    def _parents(self, ids: Sequence[UUID]) -> dict[UUID, Parent]:
        """Those that were locked, or came to be in this call."""
        seen: dict[UUID, Parent] = {}
        for id_ in ids:
            kept = self._batch.find(id_)
            if kept is not None:
                seen[id_] = Parent(id_, kept.owner, kept.row.state)
            elif id_ in self._fresh:
                row = self._ids[id_]
                seen[id_] = Parent(id_, row.owner, row.state)
        return seen

    async def enqueue(self, wanted: Sequence[NewJob]) -> list[Enqueued]:
        """Jobs of which nothing is wrong in itself."""
        answers: list[Enqueued | None] = []
        for new in wanted:
            rivals = self.rivals(new)
            verdict = admit(new, rivals)
            if verdict.status is not EnqueueStatus.CREATED or verdict.existing is not None:
                await self._flush()
                known = verdict.existing and self._ids[verdict.existing.id]
                answers.append(answer_of(new, replace(verdict, existing=known)))
                continue
            if verdict.displace is not None:
                await self._displace(verdict.displace)
                verdict = admit(new, self.rivals(new))  # it may depend on what that ended
            origin = rivals.origin if new.retry_of is not None else None
            root = origin.lineage if origin else None
            row = jobs.birth(new, self._batch.now, 0, root, verdict.waiting_for)
            if origin is not None and new.resume:
                row = replace(row, last_step=origin.last_step)
            self._run.append((row, new, origin, verdict))
            self._fresh.add(row.id)
            self._remember(row)
            answers.append(None)
            if verdict.lost is not None:
                await self._end_with(row.id, verdict.lost)
        await self._flush()
        return [
            Enqueued(EnqueueStatus.CREATED, new, existing=self._stored[new.id])
            if answer is None
            else answer
            for new, answer in zip(wanted, answers, strict=True)
        ]

    async def as_they_stand(self, answers: Sequence[Enqueued]) -> list[Enqueued]:
        """Once gates were looked at, some have passed: then each answer says how its job stands."""
        if not self._batch.looked:
            return list(answers)
        ids = {answer.existing.id for answer in answers if answer.existing is not None}
        found = await by_id(self._connection, ids)
        return [
            answer
            if answer.existing is None
            else replace(answer, existing=found.get(answer.existing.id, answer.existing))
            for answer in answers
        ]

    async def _end_with(self, job_id: UUID, lost: Parent) -> None:
        """What it depends on was lost before it came."""
        await self._flush()
        await self._batch.load([job_id])
        kept = self._batch.find(job_id)
        assert kept is not None
        told = decide.parent_ended(kept.row, lost.id, lost.state, self._batch.now)
        self._batch.write(kept, told)
        await self._batch.flush()
        for row in (await by_id(self._connection, [job_id])).values():
            self._stored[job_id] = row
            self._remember(row)

    async def _displace(self, row: JobRow) -> None:
        """A waiting job, locked when it was looked up or stored just now, gives way."""
        await self._flush()
        await self._batch.lose([row.id])
        kept = self._batch.find(row.id)
        if kept is None or kept.row.state is State.RUNNING:
            raise Overtaken
        self._batch.write(kept, decide.cancel(kept.row, give_way(row), self._batch.now))
        await self._batch.flush()
        for fresh in (await by_id(self._connection, [row.id])).values():
            self._remember(fresh)
        await self._batch.load(self._parents_named)  # some may have been queued, and let go

    async def _flush(self) -> None:
        """Write the jobs admitted so far, with their keys, and what retries copy and mark."""
        run, self._run = self._run, []
        if not run:
            return
        connection = self._connection
        given = [
            rows.insertion(new, row.root_id, row.last_step, row.waiting_for) for row, new, *_ in run
        ]
        made = await insert(connection, given, self._batch.now, gated=True)
        if len(made) < len(run):
            raise Overtaken
        for row, new, origin, _ in run:
            n, its = made[row.id].serial, made[row.id]
            stored = replace(row, serial=n, position=its.position, gates=its.gates)
            if its.gates:
                self._batch.look_at(its.gates)
            self._stored[row.id] = stored
            self._remember(stored)
            if origin is not None:
                await connection.execute(SQL.set_retried_as, origin.serial, row.id)
                self._remember(replace(self._ids[origin.id], retried_as=row.id))
                if new.resume:
                    await connection.execute(SQL.copy_steps, n, origin.serial)
        keys = [
            (row.owner, row.task, row.unique_key, made[row.id].serial)
            for row, *_ in run
            if row.unique_key is not None
        ]
        if keys:
            await connection.execute(SQL.insert_keys, *rows.columns(keys))
        await self._link(run)
        self._batch.work = True

    async def _link(self, run: Sequence[tuple[JobRow, NewJob, JobRow | None, Admission]]) -> None:
        edges: list[Edge] = []
        for row, new, _, verdict in run:
            child, waits_for = self._stored[row.id].serial, set(verdict.waits_for)
            for place, parent in enumerate(new.depends_on):
                kept = self._batch.find(parent)
                n = kept.n if kept is not None else self._stored[parent].serial
                edges.append((child, row.id, n, parent, place, parent in waits_for))
        if edges:
            await self._batch.link(edges)
