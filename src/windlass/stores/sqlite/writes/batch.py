"""Many decisions in one transaction: rows read in one statement, plain changes written in one.

Whoever waits for a job that ends is told in the same transaction, and so on from there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import apsw

from windlass.core.admission.gates import touched
from windlass.core.clock import Instant, minute_of
from windlass.core.decisions import decide
from windlass.core.decisions.transition import Answer, Decision
from windlass.core.job.dependency import Parent
from windlass.core.job.row import Standing
from windlass.core.job.state import State
from windlass.stores.sql.log import log_insertion
from windlass.stores.sqlite import rows
from windlass.stores.sqlite.connection import every, first, single
from windlass.stores.sqlite.queries import SQL
from windlass.stores.sqlite.rows import Row
from windlass.stores.sqlite.writes.positions import Turns, line_of
from windlass.stores.sqlite.writes.transaction import Tx


class Batch:
    """A row is used once from what was read together; whoever comes back to it reads it anew."""

    def __init__(self, tx: Tx, ids: Sequence[UUID] = ()) -> None:
        self._tx = tx
        self._found: dict[UUID, Row] = {}
        self._read(ids)
        self._pending: list[list[Any]] = []
        self._tallies: dict[tuple[Any, ...], list[int]] = {}
        self._ended: deque[tuple[int, UUID, State]] = deque()  # whose dependents are to be told
        self._telling = False

    def _read(self, ids: Sequence[UUID]) -> None:
        if len(ids) > 1:
            keys = {job_id.bytes: job_id for job_id in ids}
            wanted = apsw.carray(tuple(keys))
            read = every(self._tx.connection, SQL.standings, (wanted,))
            self._found = {keys[row[-1]]: row for row in read}

    def standing(self, job_id: UUID) -> tuple[Row, Standing] | None:
        row = self._found.pop(job_id, None)
        if row is None:
            self.flush()
            row = first(self._tx.connection, SQL.standing, (job_id.bytes,))
        return None if row is None else (row, rows.standing(row, job_id))

    def write(self, found: Row, row: Standing, decision: Decision, now: Instant) -> Answer:
        """All of a decision but its children, and what it awaits."""
        if decision.changes:
            self._write(found, row, decision)
        gates = touched(row, decision) if row.gates else ()
        if gates:
            self._tx.leave(found[0], gates)
        tally = decision.tally
        if tally is not None:
            self.count((now, row.queue, row.task, tally.outcome), 1, tally.wait, tally.run)
        if decision.unwait:
            self._tx.connection.execute(SQL.wait_no_more, (found[0],))
        if decision.ends and row.awaited:
            self._ended.append((found[0], row.id, decision.changes["state"]))
            if not decision.children:  # else they come first
                self.tell_dependents(now)
        return decision.answer

    def count(self, key: tuple[Instant, str, str, State], n: int, wait: int, run: int) -> None:
        now, *rest = key
        sums = self._tallies.setdefault((minute_of(now), *rest), [0, 0, 0])
        sums[0] += n
        sums[1] += wait
        sums[2] += run

    def _write(self, found: Row, row: Standing, decision: Decision) -> None:
        tx, n = self._tx, found[0]
        position = self._position(found, row, decision) if decision.queue else None
        self._pending.append(
            rows.saved(found, decision.changes, position, logged=bool(decision.log))
        )
        for line in decision.log:
            tx.connection.execute(SQL.insert_log, log_insertion(n, line))
        for point in decision.checkpoints:
            values = (n, point.step, point.value, point.attempt, point.at)
            tx.connection.execute(SQL.put_step, values)
        tx.touch(row.id)
        tx.work = tx.work or decision.queue

    def _position(self, found: Row, row: Standing, decision: Decision) -> int:
        priority, key = found[rows.PRIORITY], found[rows.LIMIT_KEY]
        gate = decision.changes.get("gate", row.gate)
        # From one gate to the next it stays as old as it was.
        moves = row.gate is not None and gate is not None
        arrival = (row.position or 0) if moves else self._tx.position()
        if key is not None:
            self.flush()
        return Turns(self._tx.connection).place(line_of(row.queue, gate, priority), key, arrival)

    def tell_dependents(self, now: Instant) -> None:
        """One after the other: a chain may be longer than calls can be deep."""
        if self._telling:
            return
        self._telling = True
        connection = self._tx.connection
        while self._ended:
            n, parent, ended = self._ended.popleft()
            waiting = every(connection, SQL.dependents, (n,))
            connection.execute(SQL.tell_dependents, (n,))
            for (child,) in waiting:
                found = self.standing(UUID(bytes=child))
                if found is not None:
                    self.write(*found, decide.parent_ended(found[1], parent, ended, now), now)
        self._telling = False

    def suspend(self, job_id: UUID, awaits: Sequence[UUID], now: Instant) -> Answer:
        """Have a job wait for those of them that have not ended."""
        self.forget()
        found = self.standing(job_id)
        assert found is not None
        owner = single(self._tx.connection, SQL.owner_of, (found[0][0],))
        seen = parents(self._tx.connection, awaits)
        still = [id_ for id_, (_, it) in seen.items() if it.open and it.owner == owner]
        link(self._tx.connection, found[0][0], seen, still)
        return self.write(*found, decide.suspended(found[1], len(still), now), now)

    def forget(self) -> None:
        """Others are about to write: what was read before may be true no more."""
        self.flush()
        self._found.clear()

    def flush(self) -> None:
        if self._pending:
            self._tx.connection.executemany(SQL.save, self._pending)
            self._pending = []

    def finish(self) -> None:
        self.flush()
        for key, sums in self._tallies.items():
            self._tx.connection.execute(SQL.add_rollup, (*key, *sums))


def parents(connection: apsw.Connection, ids: Sequence[UUID]) -> dict[UUID, tuple[int, Parent]]:
    """Those of them that are there, with their numbers, in the order in which they were named."""
    keys = {job_id.bytes: job_id for job_id in ids}
    read = every(connection, SQL.parents, (apsw.carray(tuple(keys)),)) if keys else []
    seen = {keys[id_]: (n, Parent(keys[id_], owner, State(state))) for n, id_, owner, state in read}
    return {id_: seen[id_] for id_ in ids if id_ in seen}


def link(
    connection: apsw.Connection,
    child: int,
    seen: dict[UUID, tuple[int, Parent]],
    waits_for: Sequence[UUID],
) -> None:
    """Store whom a job depends on; of those it waits for, that they are awaited."""
    if not seen:
        return
    place = int(single(connection, SQL.next_place, (child,)))
    still = set(waits_for)
    connection.executemany(
        SQL.put_edge,
        [
            (child, n, number, id_.bytes, id_ in still)
            for number, (id_, (n, _)) in enumerate(seen.items(), place)
        ],
    )
    connection.executemany(SQL.mark_awaited, [(seen[id_][0],) for id_ in waits_for])
