"""Many decisions in one transaction: rows locked and read together, decided, written together.

A decision about a job that comes twice sees what the first one changed, though nothing is written
before the end. Whatever else reads these jobs in the transaction has to call `flush` before.
"""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, TypeAlias
from uuid import UUID

from asyncpg.exceptions import LockNotAvailableError

from windlass.core.admission.gates import held, place, touched
from windlass.core.clock import Instant, minute_of
from windlass.core.decisions import decide
from windlass.core.decisions.transition import Answer, Decision
from windlass.core.event import ATTEMPT
from windlass.core.job.state import FINAL, State, Trigger
from windlass.stores.postgres import rows
from windlass.stores.postgres.connection import Connection, Row
from windlass.stores.postgres.errors import Overtaken
from windlass.stores.postgres.queries import SQL
from windlass.stores.sql.log import log_insertion

Edge: TypeAlias = tuple[int, UUID, int, UUID, int, bool]
"""Number and id of a child, the same of its parent, its place among them, whether it waits."""


class Kept:
    """A job in the batch: as it was found, and as it stands by now."""

    __slots__ = (
        "before", "limit_key", "logged", "n", "owner", "priority", "requeued", "row", "turn",
        "unique_key",
    )  # fmt: skip

    def __init__(self, record: Row) -> None:
        self.row = self.before = rows.standing(record)
        self.n, self.priority, self.owner, self.unique_key, self.logged = tuple(record)[39:44]
        self.limit_key: str | None = record[49]
        self.requeued = False
        self.turn: int | None = None  # its place in line, unless the server gives it


class Batch:
    def __init__(self, connection: Connection, now: Instant, shard: int) -> None:
        self.now = now
        self.work = False  # something may have become claimable
        self.touched: list[UUID] = []
        self.held: set[UUID] = set()  # jobs that somebody else has locked
        # That may have room, or somebody new; with the jobs that have left them, and their starts.
        self._gates: set[tuple[str, int | None, Instant | None]] = set()
        self._connection = connection
        self._shard = shard
        self._kept: dict[UUID, Kept] = {}
        self._changed: dict[UUID, Kept] = {}  # in the order in which they were queued
        self._log: list[Row] = []
        self._steps: dict[tuple[int, str], Row] = {}
        self._tallies: dict[tuple[Any, ...], list[int]] = {}
        self._ends: Counter[UUID] = Counter()  # of leases, by their tokens
        self._past: dict[tuple[int, int], tuple[UUID, Trigger]] = {}
        self._below: dict[UUID, list[UUID]] = {}  # who waits for whom
        self._left: set[UUID] = set()  # jobs that were queued, and written
        self._told: list[int] = []  # jobs whose dependents know of their end
        self._unwait: list[int] = []  # and those that wait for nobody any more

    @staticmethod
    async def open(
        connection: Connection,
        given: Instant | None,
        shard: int,
        ids: Collection[UUID],
        *,
        done: Collection[UUID] = (),
        lost: Collection[UUID] = (),
        others: Collection[UUID] = (),
    ) -> Batch:
        """Begin with these jobs, those that wait for them, and `others`, all locked in one order.

        `done` are those that may succeed, `lost` those that may end without success: what depends
        on these may go with them.
        """
        found = await connection.fetchrow(SQL.below, given, list(ids), list(done), list(lost))
        assert found is not None
        now, below = found
        batch = Batch(connection, now, shard)
        if below:
            await batch._wait_for({*ids, *below, *others})
        await batch.load({*ids, *below, *others})
        await batch._look_below()
        return batch

    async def _wait_for(self, ids: Collection[UUID]) -> None:
        """For those who settle beside us, and meet us where many wait for one, or one for many.

        If it takes long, somebody's own transaction has one of them: then nobody waits.
        """
        await self._connection.execute("SAVEPOINT windlass_waiting")
        try:
            await self._connection.execute(SQL.lock_soon, sorted(ids))
            await self._connection.execute(SQL.wait_as_usual)
        except LockNotAvailableError:
            await self._connection.execute("ROLLBACK TO SAVEPOINT windlass_waiting")

    async def lose(self, ids: Collection[UUID]) -> None:
        """Wait for these jobs, which are to end without success, and for all that go with them."""
        found = await self._connection.fetchrow(SQL.below, self.now, list(ids), [], list(ids))
        assert found is not None
        await self.load({*ids, *found[1]}, wait=True)
        await self._look_below()

    async def _look_below(self) -> None:
        """Now that they are locked: who waits for the jobs at hand."""
        unseen = {
            kept.n: job_id
            for job_id, kept in self._kept.items()
            if kept.row.awaited and job_id not in self._below
        }
        if unseen:
            self._below |= {job_id: [] for job_id in unseen.values()}
            for parent, child in await self._connection.fetch(SQL.dependents, sorted(unseen)):
                self._below[parent].append(child)

    def blocked(self, job_id: UUID) -> bool:
        """Whether somebody else holds this job, or one that its end would change."""
        seen, wanted = {job_id}, [job_id]
        while wanted:
            one = wanted.pop()
            if one in self.held:
                return True
            more = [child for child in self._below.get(one, ()) if child not in seen]
            seen.update(more)
            wanted += more
        return False

    async def load(self, ids: Iterable[UUID], *, wait: bool = False) -> None:
        """Lock these jobs, as far as they are not yet, in the order of their ids.

        Without `wait`, what an open transaction of somebody else's has is `held`.
        """
        wanted = sorted(set(ids) - self._kept.keys())
        if not wanted:
            return
        if wait:
            await self._connection.execute(SQL.lock_jobs, wanted)
        for record in await self._connection.fetch(SQL.standings, wanted):
            self._kept[record[0]] = Kept(record)
        absent = [job_id for job_id in wanted if job_id not in self._kept]
        if absent:
            there = await self._connection.fetch(SQL.present, absent)
            self.held.update(record[0] for record in there)

    def find(self, job_id: UUID) -> Kept | None:
        return self._kept.get(job_id)

    async def look_back(self, wanted: Collection[tuple[int, int]]) -> None:
        """Read how these past attempts, by job and fence, ended."""
        if not wanted:
            return
        found = await self._connection.fetch(SQL.past_outcomes, *rows.columns(wanted))
        for n, fence, facts in found:
            self._remember(n, fence, json.loads(facts))

    def _remember(self, n: int, fence: int, facts: dict[str, Any]) -> None:
        self._past[n, fence] = UUID(facts["token"]), Trigger(facts["outcome"])

    def past(self, n: int, fence: int) -> tuple[UUID, Trigger] | None:
        return self._past.get((n, fence))

    def write(self, kept: Kept, decision: Decision) -> Answer:
        """Note what was decided, and what that means for those who wait; `flush` writes it."""
        self.note(kept, decision)
        if decision.ends:
            self.tell(kept)
        return decision.answer

    def tell(self, kept: Kept) -> None:
        """A job has ended: what that means for those who wait for it."""
        ended = deque([kept])
        while ended:
            parent = ended.popleft()
            for child in self._dependents(parent):
                row = parent.row
                told = decide.parent_ended(child.row, row.id, row.state, self.now)
                self.note(child, told)
                if told.ends:
                    ended.append(child)

    def _dependents(self, ended: Kept) -> Iterator[Kept]:
        if not ended.row.awaited:
            return
        self._told.append(ended.n)
        waiting, self._below[ended.row.id] = self._below.get(ended.row.id, []), []
        for job_id in waiting:
            if job_id in self._left:
                continue  # its time came before
            child = self._kept.get(job_id)
            if child is None:
                raise Overtaken  # it was not known that this would end so
            yield child

    def note(self, kept: Kept, decision: Decision) -> None:
        """Without a word to those who wait."""
        if kept.row.gates:
            self.look_at(touched(kept.row, decision))
        if decision.changes:
            self._change(kept, decision)
        tally = decision.tally
        if tally is not None:
            row = kept.row
            key = (minute_of(self.now), row.queue, row.task, tally.outcome.value)
            sums = self._tallies.setdefault(key, [0, 0, 0])
            for index, number in enumerate((1, tally.wait, tally.run)):
                sums[index] += number
        if decision.unwait:
            self._unwait.append(kept.n)

    def _change(self, kept: Kept, decision: Decision) -> None:
        kept.row = replace(kept.row, **decision.changes)
        if decision.queue:
            kept.requeued = self.work = True
            self._changed.pop(kept.row.id, None)  # the last to be queued is the last in line
        self._changed[kept.row.id] = kept
        for line in decision.log:
            kept.logged = True
            self._log.append(log_insertion(kept.n, line))
            if line.type == ATTEMPT:
                self._remember(kept.n, line.fence, dict(line.facts))
        for point in decision.checkpoints:
            values = (kept.n, point.step, point.value, point.attempt, point.at)
            self._steps[kept.n, point.step] = values
        self.touched.append(kept.row.id)

    async def flush(self) -> None:
        """Write what was decided so far."""
        changed, self._changed = list(self._changed.values()), {}
        if not changed:
            return
        await self._give_turns([kept for kept in changed if _requeued(kept)])
        for piece in rows.portions([_saved(kept) for kept in changed], 28):
            await self._execute(SQL.save, piece)
        for kept in changed:
            if kept.before.state is State.RUNNING is not kept.row.state and kept.before.token:
                self._ends[kept.before.token] += 1
            if kept.before.gates:
                self._gates.update(_left_slots(kept))
        await self._execute(SQL.leave_line, _left_line(changed))
        await self._execute(SQL.leave_gate, _left_gate(changed))
        await self._execute(SQL.leave_waiting, _left_waiting(changed))
        await self._execute(SQL.list_ended, _ended(changed))
        log, self._log = self._log, []
        for piece in rows.portions(log, 8):
            await self._execute(SQL.insert_log, piece)
        steps, self._steps = self._steps, {}
        for piece in rows.portions(list(steps.values()), 2):
            await self._execute(SQL.put_steps, piece)
        told, self._told = self._told, []
        await self._execute(SQL.tell_dependents, [(n,) for n in sorted(told)])
        alone, self._unwait = self._unwait, []
        await self._execute(SQL.wait_no_more, [(n,) for n in sorted(alone)])
        for kept in changed:
            if kept.requeued:  # the server gave its place: whoever needs it, reads it
                self._left.add(kept.row.id)
                del self._kept[kept.row.id]
            kept.before = kept.row

    async def _give_turns(self, queued: list[Kept]) -> None:
        """Where jobs with keys come to stand, each behind those before it."""
        if all(kept.limit_key is None for kept in queued):
            return
        wanted = [(k.row.queue, k.row.gate, k.priority, k.limit_key) for k in queued]
        found = await self._connection.fetch(SQL.turns, *rows.columns(wanted))
        firsts: dict[tuple[object, ...], int] = {}  # of those who come now
        lasts: dict[tuple[object, ...], int] = {}
        for kept, (queue, gate, *own), (number, stood, behind) in zip(
            queued, wanted, found, strict=True
        ):
            line = (gate, None if gate else queue, kept.priority)
            before = [one for one in (stood, firsts.get(line)) if one is not None]
            last = lasts.get((*line, *own), behind)
            its = place(kept.limit_key, number, min(before, default=None), last)
            firsts[line] = min(its, firsts.get(line, its))
            kept.turn = lasts[*line, *own] = its

    async def link(self, edges: Sequence[Edge]) -> None:
        """Store who depends on whom; of those waited for, that they are awaited."""
        await self._execute(SQL.put_edges, edges)
        awaited = sorted({edge[2] for edge in edges if edge[5]})
        await self._execute(SQL.mark_awaited, [(n,) for n in awaited])
        for child, parent in ((edge[1], edge[3]) for edge in edges if edge[5]):
            kept = self._kept.get(parent)
            if kept is not None:
                if parent in self._below or not kept.row.awaited:  # else they are yet to be read
                    self._below.setdefault(parent, []).append(child)
                if not kept.row.awaited:
                    kept.row = replace(kept.row, awaited=True)

    @property
    def looked(self) -> bool:
        """Whether any gate is looked at."""
        return bool(self._gates)

    def look_at(self, gates: Iterable[str]) -> None:
        """Somebody new waits there."""
        self._gates.update((gate, None, None) for gate in gates)

    async def finish(self) -> None:
        """Write the rest, and let in whom that makes room for.

        Then comes what others may be waiting for: the lease rows, then the counts.
        """
        await self.flush()
        if self._gates:
            let_in = await self._connection.fetchval(
                SQL.admit, *zip(*self._gates, strict=True), self.now
            )
            self.touched += let_in
            self.work = self.work or bool(let_in)
        await self._execute(SQL.count_down, sorted(self._ends.items()))
        tallies = sorted((*key, *sums) for key, sums in self._tallies.items())
        await self._execute(SQL.add_rollups, tallies, self._shard)

    async def _execute(self, sql: str, values: Sequence[Row], *first: object) -> None:
        if values:
            await self._connection.execute(sql, *first, *rows.columns(values))


def _saved(kept: Kept) -> Row:
    row = kept.row
    waits, at = rows.waiting(row)
    return (kept.n, *rows.saved(row), kept.logged, kept.requeued, kept.turn, waits, at)


def _requeued(kept: Kept) -> bool:
    """Whether it comes into line, or to a gate, and is still there when it is written."""
    row = kept.row
    kept.requeued = kept.requeued and (row.state is State.QUEUED or row.gate is not None)
    return kept.requeued


def _left_line(changed: list[Kept]) -> list[Row]:
    return [
        (kept.row.queue, kept.priority, kept.before.position, kept.row.id)
        for kept in changed
        if kept.before.state is State.QUEUED and kept.row.state is not State.QUEUED
    ]


def _left_slots(kept: Kept) -> Iterator[tuple[str, int, Instant | None]]:
    before = kept.before
    still = held(kept.row)
    begun = before.started_at if before.state is State.RUNNING else None
    return ((gate, kept.n, begun) for gate in held(before) if gate not in still)


def _left_gate(changed: list[Kept]) -> list[Row]:
    return [
        (kept.before.gate, kept.priority, kept.before.position, kept.row.id)
        for kept in changed
        if kept.before.gate is not None and kept.row.gate is None
    ]


def _left_waiting(changed: list[Kept]) -> list[Row]:
    """Rows of the table that `save` did not replace."""
    return [
        (kept.row.queue, kept.before.state, kept.n)
        for kept in changed
        if rows.waiting(kept.before)[0]
        and not (rows.waiting(kept.row)[0] and kept.row.state is kept.before.state)
    ]


def _ended(changed: list[Kept]) -> list[Row]:
    return [
        (
            kept.n,
            kept.row.state,
            kept.row.ended_at,
            kept.logged,
            kept.owner,
            kept.row.task,
            kept.unique_key,
        )
        for kept in changed
        if kept.row.state in FINAL and kept.before.state not in FINAL
    ]
