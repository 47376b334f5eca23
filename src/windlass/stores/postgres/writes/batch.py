"""Many decisions in one transaction: rows are locked together, decided, and written together.

A second decision about a job sees the changes of the first, although nothing is written before the
end. Other reads of these jobs in the transaction must call `flush` first.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from operator import itemgetter
from typing import Any, TypeAlias
from uuid import UUID

from asyncpg.exceptions import LockNotAvailableError

from windlass.core.admission.gates import affected_gates, gates_in_use
from windlass.core.admission.queue_position import fair_position
from windlass.core.clock import Instant, minute_of
from windlass.core.decisions import decide
from windlass.core.decisions.transition import ApplyResult, Decision
from windlass.core.event import ATTEMPT
from windlass.core.job.state import FINAL, State, Trigger
from windlass.stores.postgres import rows
from windlass.stores.postgres.connection import Connection, Row
from windlass.stores.postgres.errors import ConcurrentChange
from windlass.stores.postgres.queries import SQL
from windlass.stores.sql.job_columns import index_of
from windlass.stores.sql.row_codecs import LOG_BODY_INDEX, log_insertion

_STEP_VALUE_INDEX = 2  # in the rows of `put_steps`
# The columns of `lock_lifecycles` that are no fields of `LifecycleRow`.
_more = itemgetter(*map(index_of, ("n", "priority", "owner", "unique_key", "limit_key", "logged")))
Edge: TypeAlias = tuple[int, UUID, int, UUID, int, bool]
"""Child number and id, parent number and id, ordinal among the parents, whether it is open."""


class LoadedJob:
    """A locked job in the batch: as stored (`before`), and with the decided changes (`row`)."""

    __slots__ = (
        "assigned_position", "before", "limit_key", "logged", "n", "owner", "priority", "requeued",
        "row", "unique_key",
    )  # fmt: skip

    def __init__(self, record: Row) -> None:
        self.row = self.before = rows.lifecycle_row(record)
        self.n, self.priority, self.owner, self.unique_key, self.limit_key, self.logged = _more(
            record
        )
        self.requeued = False
        self.assigned_position: int | None = None  # None: the server assigns it


class PostgresBatch:
    """Locks, decisions and writes of one transaction."""

    def __init__(self, connection: Connection, now: Instant, shard: int) -> None:
        self.now = now
        self.work = False  # jobs may have become claimable
        self.touched: list[UUID] = []
        self.locked_elsewhere: set[UUID] = set()  # jobs locked by other transactions
        # Gates to open, each with a job that left it and the start of its attempt, or None.
        self._gates: set[tuple[str, int | None, Instant | None]] = set()
        self._connection = connection
        self._shard = shard
        self._loaded: dict[UUID, LoadedJob] = {}
        self._changed: dict[UUID, LoadedJob] = {}  # in the order of queueing
        self._log: list[Row] = []
        self._steps: dict[tuple[int, str], Row] = {}
        self._known_steps: set[tuple[int, str]] = set()  # stored or decided steps, once loaded
        self._rollups: dict[tuple[Any, ...], list[int]] = {}
        self._ended_leases: Counter[UUID] = Counter()  # ended jobs, by lease token
        self._past: dict[tuple[int, int], tuple[UUID, Trigger]] = {}
        self._dependents_of: dict[UUID, list[UUID]] = {}  # open children, by parent
        # Queued and written jobs: their positions are unknown here.
        self._requeued_ids: set[UUID] = set()
        self._ended_parents: list[int] = []  # jobs whose dependents are updated
        self._released_children: list[int] = []  # jobs that stopped waiting

    @staticmethod
    async def open(
        connection: Connection,
        test_now: Instant | None,
        shard: int,
        ids: Collection[UUID],
        *,
        done: Collection[UUID] = (),
        unsuccessful: Collection[UUID] = (),
        others: Collection[UUID] = (),
    ) -> PostgresBatch:
        """Start a batch with these jobs, their dependents, and `others`, locked in one order.

        `done` are jobs that may succeed. `unsuccessful` are jobs that may end without success:
        dependents may end with them.
        """
        found = await connection.fetchrow(
            SQL.descendants, test_now, list(ids), list(done), list(unsuccessful)
        )
        assert found is not None
        now, descendants = found
        batch = PostgresBatch(connection, now, shard)
        if descendants:
            await batch._lock_briefly({*ids, *descendants, *others})
        await batch.load({*ids, *descendants, *others})
        await batch._load_dependents()
        return batch

    async def _lock_briefly(self, ids: Collection[UUID]) -> None:
        """Wait briefly for concurrent settles, which often share dependents.

        A longer wait means a caller's open transaction: then `load` skips the locked jobs.
        """
        await self._connection.execute("SAVEPOINT windlass_waiting")
        try:
            await self._connection.execute(SQL.lock_jobs_briefly, sorted(ids))
            await self._connection.execute(SQL.reset_lock_timeout)
        except LockNotAvailableError:
            await self._connection.execute("ROLLBACK TO SAVEPOINT windlass_waiting")

    async def load_ending(self, ids: Collection[UUID]) -> None:
        """Lock jobs that will end without success, and all that may end with them; may wait."""
        found = await self._connection.fetchrow(SQL.descendants, self.now, list(ids), [], list(ids))
        assert found is not None
        await self.load({*ids, *found[1]}, wait=True)
        await self._load_dependents()

    async def _load_dependents(self) -> None:
        """Read the open children of the locked jobs."""
        missing = {
            loaded.n: job_id
            for job_id, loaded in self._loaded.items()
            if loaded.row.awaited and job_id not in self._dependents_of
        }
        if missing:
            self._dependents_of |= {job_id: [] for job_id in missing.values()}
            for parent, child in await self._connection.fetch(SQL.dependents, sorted(missing)):
                self._dependents_of[parent].append(child)

    def is_locked(self, job_id: UUID) -> bool:
        """Whether another transaction has locked this job, or one that its end would change."""
        seen, remaining = {job_id}, [job_id]
        while remaining:
            next_id = remaining.pop()
            if next_id in self.locked_elsewhere:
                return True
            children = [id_ for id_ in self._dependents_of.get(next_id, ()) if id_ not in seen]
            seen.update(children)
            remaining += children
        return False

    async def load(self, ids: Iterable[UUID], *, wait: bool = False) -> None:
        """Lock and read jobs that are not loaded yet, in the order of their ids.

        Without `wait`, jobs locked by other transactions go to `locked_elsewhere`.
        """
        requested = sorted(set(ids) - self._loaded.keys())
        if not requested:
            return
        if wait:
            await self._connection.execute(SQL.lock_jobs, requested)
        for record in await self._connection.fetch(SQL.lock_lifecycles, requested):
            self._loaded[record[0]] = LoadedJob(record)
        absent = [job_id for job_id in requested if job_id not in self._loaded]
        if absent:
            existing = await self._connection.fetch(SQL.existing_ids, absent)
            self.locked_elsewhere.update(record[0] for record in existing)

    def find(self, job_id: UUID) -> LoadedJob | None:
        return self._loaded.get(job_id)

    async def load_past_outcomes(self, requested: Collection[tuple[int, int]]) -> None:
        """Read the outcomes of past attempts, by job number and fence."""
        if not requested:
            return
        found = await self._connection.fetch(SQL.past_outcomes, *rows.columns(requested))
        for n, fence, data in found:
            self._remember(n, fence, json.loads(data))

    def _remember(self, n: int, fence: int, data: dict[str, Any]) -> None:
        self._past[n, fence] = UUID(data["token"]), Trigger(data["outcome"])

    def past(self, n: int, fence: int) -> tuple[UUID, Trigger] | None:
        return self._past.get((n, fence))

    async def load_steps(self, requested: Collection[tuple[int, str]]) -> None:
        """Read which of these steps have a checkpoint, by job number and step."""
        if requested:
            found = await self._connection.fetch(SQL.existing_steps, *rows.columns(requested))
            self._known_steps.update((n, step) for n, step in found)

    def has_step(self, n: int, step: str) -> bool:
        return (n, step) in self._known_steps

    def write(self, loaded: LoadedJob, decision: Decision) -> ApplyResult:
        """Record a decision and its effect on dependents; `flush` writes it."""
        self.record(loaded, decision)
        if decision.ends_job:
            self.update_dependents(loaded)
        return decision.result

    def update_dependents(self, loaded: LoadedJob) -> None:
        """Record the effect of an ended job on its dependents, recursively."""
        ended = deque([loaded])
        while ended:
            parent = ended.popleft()
            for child in self._dependents(parent):
                row = parent.row
                decision = decide.parent_ended(child.row, row.id, row.state, self.now)
                self.record(child, decision)
                if decision.ends_job:
                    ended.append(child)

    def _dependents(self, ended: LoadedJob) -> Iterator[LoadedJob]:
        if not ended.row.awaited:
            return
        self._ended_parents.append(ended.n)
        children = self._dependents_of.get(ended.row.id, [])
        self._dependents_of[ended.row.id] = []
        for job_id in children:
            if job_id in self._requeued_ids:
                continue  # due by its time already
            child = self._loaded.get(job_id)
            if child is None:
                raise ConcurrentChange  # not locked: this outcome was not expected
            yield child

    def record(self, loaded: LoadedJob, decision: Decision) -> None:
        """Record a decision, without its effect on dependents."""
        if loaded.row.gates:
            self.mark_gates(affected_gates(loaded.row, decision))
        if decision.changes:
            self._change(loaded, decision)
        sample = decision.sample
        if sample is not None:
            row = loaded.row
            key = (minute_of(self.now), row.queue, row.task, sample.outcome.value)
            sums = self._rollups.setdefault(key, [0, 0, 0])
            for index, number in enumerate((1, sample.wait, sample.run)):
                sums[index] += number
        if decision.clear_waits:
            self._released_children.append(loaded.n)

    def _change(self, loaded: LoadedJob, decision: Decision) -> None:
        loaded.row = replace(loaded.row, **decision.changes)
        if decision.needs_position:
            loaded.requeued = self.work = True
            self._changed.pop(loaded.row.id, None)  # positions follow the order of queueing
        self._changed[loaded.row.id] = loaded
        for log_row in decision.log:
            loaded.logged = True
            self._log.append(log_insertion(loaded.n, log_row))
            if log_row.type == ATTEMPT:
                self._remember(loaded.n, log_row.fence, dict(log_row.data))
        for point in decision.checkpoints:
            values = (loaded.n, point.step, point.value, point.attempt, point.at)
            self._steps[loaded.n, point.step] = values
            self._known_steps.add((loaded.n, point.step))
        self.touched.append(loaded.row.id)

    async def flush(self) -> None:
        """Write the decisions recorded so far."""
        changed, self._changed = list(self._changed.values()), {}
        if not changed:
            return
        await self._assign_positions([loaded for loaded in changed if _requeued(loaded)])
        for chunk in rows.chunks([_save_params(loaded) for loaded in changed], rows.RESULT_INDEX):
            await self._execute(SQL.save_jobs, chunk)
        for loaded in changed:
            if loaded.before.state is State.RUNNING is not loaded.row.state and loaded.before.token:
                self._ended_leases[loaded.before.token] += 1
            if loaded.before.gates:
                self._gates.update(_released_slots(loaded))
        await self._execute(SQL.delete_queued, _dequeued(changed))
        await self._execute(SQL.delete_from_gate_queue, _left_gate_queue(changed))
        await self._execute(SQL.delete_waiting, _left_waiting(changed))
        await self._execute(SQL.insert_ended, _newly_ended(changed))
        log, self._log = self._log, []
        for chunk in rows.chunks(log, LOG_BODY_INDEX):
            await self._execute(SQL.insert_log, chunk)
        steps, self._steps = self._steps, {}
        for chunk in rows.chunks(list(steps.values()), _STEP_VALUE_INDEX):
            await self._execute(SQL.put_steps, chunk)
        ended, self._ended_parents = self._ended_parents, []
        await self._execute(SQL.close_edges_of_parents, [(n,) for n in sorted(ended)])
        released, self._released_children = self._released_children, []
        await self._execute(SQL.close_edges_of_children, [(n,) for n in sorted(released)])
        for loaded in changed:
            if loaded.requeued:  # the server assigned the position: later reads load it again
                self._requeued_ids.add(loaded.row.id)
                del self._loaded[loaded.row.id]
            loaded.before = loaded.row

    async def _assign_positions(self, queued: list[LoadedJob]) -> None:
        """Assign fair positions to jobs with limit keys, after the jobs queued before."""
        if all(loaded.limit_key is None for loaded in queued):
            return
        requested = [(job.row.queue, job.row.gate, job.priority, job.limit_key) for job in queued]
        found = await self._connection.fetch(SQL.position_bounds, *rows.columns(requested))
        firsts: dict[tuple[object, ...], int] = {}  # of this batch
        lasts: dict[tuple[object, ...], int] = {}
        for loaded, (queue, gate, *own), (number, first_stored, last_stored) in zip(
            queued, requested, found, strict=True
        ):
            target = (gate, None if gate else queue, loaded.priority)
            before = [first for first in (first_stored, firsts.get(target)) if first is not None]
            last = lasts.get((*target, *own), last_stored)
            position = fair_position(loaded.limit_key, number, min(before, default=None), last)
            firsts[target] = min(position, firsts.get(target, position))
            loaded.assigned_position = lasts[*target, *own] = position

    async def link(self, edges: Sequence[Edge]) -> None:
        """Store dependencies, and mark the open parents as awaited."""
        await self._execute(SQL.put_edges, edges)
        awaited = sorted({edge[2] for edge in edges if edge[5]})
        await self._execute(SQL.mark_awaited, [(n,) for n in awaited])
        for child, parent in ((edge[1], edge[3]) for edge in edges if edge[5]):
            loaded = self._loaded.get(parent)
            if loaded is not None:
                # Otherwise `_load_dependents` has not read the children yet.
                if parent in self._dependents_of or not loaded.row.awaited:
                    self._dependents_of.setdefault(parent, []).append(child)
                if not loaded.row.awaited:
                    loaded.row = replace(loaded.row, awaited=True)

    @property
    def gates_marked(self) -> bool:
        """Whether `finish` opens any gate."""
        return bool(self._gates)

    def mark_gates(self, gates: Iterable[str]) -> None:
        """Have `finish` open gates with a new job or freed capacity."""
        self._gates.update((gate, None, None) for gate in gates)

    async def finish(self) -> None:
        """Write the rest, and admit the jobs that gates have capacity for.

        Lease rows and rollups come last: other transactions may wait for their locks.
        """
        await self.flush()
        if self._gates:
            admitted = await self._connection.fetchval(
                SQL.admit, *zip(*self._gates, strict=True), self.now
            )
            self.touched += admitted
            self.work = self.work or bool(admitted)
        await self._execute(SQL.count_down_leases, sorted(self._ended_leases.items()))
        rollups = sorted((*key, *sums) for key, sums in self._rollups.items())
        await self._execute(SQL.add_rollups, rollups, self._shard)

    async def _execute(self, sql: str, values: Sequence[Row], *first: object) -> None:
        if values:
            await self._connection.execute(sql, *first, *rows.columns(values))


def _save_params(loaded: LoadedJob) -> Row:
    row = loaded.row
    waits, at = rows.waiting_entry(row)
    extras = (loaded.n, loaded.logged, loaded.requeued, loaded.assigned_position, waits, at)
    return rows.save_params(row) + extras


def _requeued(loaded: LoadedJob) -> bool:
    """Whether the job enters a queue or gate, and is still there when it is written."""
    row = loaded.row
    loaded.requeued = loaded.requeued and (row.state is State.QUEUED or row.gate is not None)
    return loaded.requeued


def _dequeued(changed: list[LoadedJob]) -> list[Row]:
    return [
        (loaded.row.queue, loaded.priority, loaded.before.position, loaded.row.id)
        for loaded in changed
        if loaded.before.state is State.QUEUED and loaded.row.state is not State.QUEUED
    ]


def _released_slots(loaded: LoadedJob) -> Iterator[tuple[str, int, Instant | None]]:
    before = loaded.before
    still_held = gates_in_use(loaded.row)
    started_at = before.started_at if before.state is State.RUNNING else None
    return ((gate, loaded.n, started_at) for gate in gates_in_use(before) if gate not in still_held)


def _left_gate_queue(changed: list[LoadedJob]) -> list[Row]:
    return [
        (loaded.before.gate, loaded.priority, loaded.before.position, loaded.row.id)
        for loaded in changed
        if loaded.before.gate is not None and loaded.row.gate is None
    ]


def _left_waiting(changed: list[LoadedJob]) -> list[Row]:
    """Return the keys of `windlass_waiting` rows that `save_jobs` does not replace."""
    return [
        (loaded.row.queue, loaded.before.state, loaded.n)
        for loaded in changed
        if rows.waiting_entry(loaded.before)[0]
        and not (rows.waiting_entry(loaded.row)[0] and loaded.row.state is loaded.before.state)
    ]


def _newly_ended(changed: list[LoadedJob]) -> list[Row]:
    return [
        (
            loaded.n,
            loaded.row.state,
            loaded.row.ended_at,
            loaded.logged,
            loaded.owner,
            loaded.row.task,
            loaded.unique_key,
        )
        for loaded in changed
        if loaded.row.state in FINAL and loaded.before.state not in FINAL
    ]
