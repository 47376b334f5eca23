"""Batch of decisions in one transaction: one statement to read the rows, one to write changes.

When a job ends, its dependents are updated in the same transaction, and in turn their dependents.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import apsw

from windlass.core.admission.gates import affected_gates
from windlass.core.clock import Instant, minute_of
from windlass.core.decisions import decide
from windlass.core.decisions.transition import ApplyResult, Decision
from windlass.core.job.dependency import Parent
from windlass.core.job.row import LifecycleRow
from windlass.core.job.state import State
from windlass.stores.sql.row_codecs import log_insertion
from windlass.stores.sqlite import rows
from windlass.stores.sqlite.connection import fetch_all, fetch_one, fetch_value
from windlass.stores.sqlite.queries import SQL
from windlass.stores.sqlite.rows import Row
from windlass.stores.sqlite.writes.positions import PositionAllocator, order_of
from windlass.stores.sqlite.writes.write_transaction import WriteTransaction


class SqliteBatch:
    """Reads rows together. Each prefetched row is used once; a second use reads it again."""

    def __init__(self, tx: WriteTransaction, ids: Sequence[UUID] = ()) -> None:
        self._tx = tx
        self._rows: dict[UUID, Row] = {}
        self._read(ids)
        self._pending: list[list[Any]] = []
        self._rollups: dict[tuple[Any, ...], list[int]] = {}
        # Ended jobs whose dependents are to be updated.
        self._ended: deque[tuple[int, UUID, State]] = deque()
        self._updating_dependents = False

    def _read(self, ids: Sequence[UUID]) -> None:
        if len(ids) > 1:
            keys = {job_id.bytes: job_id for job_id in ids}
            found = fetch_all(self._tx.connection, SQL.get_lifecycles, (apsw.carray(tuple(keys)),))
            self._rows = {keys[row[rows.ID]]: row for row in found}

    def lifecycle(self, job_id: UUID) -> tuple[Row, LifecycleRow] | None:
        row = self._rows.pop(job_id, None)
        if row is None:
            self.flush()
            row = fetch_one(self._tx.connection, SQL.get_lifecycle, (job_id.bytes,))
        return None if row is None else (row, rows.lifecycle_row(row, job_id))

    def write(
        self, stored: Row, row: LifecycleRow, decision: Decision, now: Instant
    ) -> ApplyResult:
        """Write a decision, except its children and the jobs that it awaits."""
        if decision.changes:
            self._write(stored, row, decision)
        gates = affected_gates(row, decision) if row.gates else ()
        if gates:
            self._tx.gates_changed(stored[rows.N], gates)
        sample = decision.sample
        if sample is not None:
            self.add_rollup((now, row.queue, row.task, sample.outcome), 1, sample.wait, sample.run)
        if decision.clear_waits:
            self._tx.connection.execute(SQL.close_edges_of_child, (stored[rows.N],))
        if decision.ends_job and row.awaited:
            self._ended.append((stored[rows.N], row.id, decision.changes["state"]))
            if not decision.children:  # children are inserted first
                self.update_dependents(now)
        return decision.result

    def add_rollup(self, key: tuple[Instant, str, str, State], n: int, wait: int, run: int) -> None:
        now, *rest = key
        sums = self._rollups.setdefault((minute_of(now), *rest), [0, 0, 0])
        sums[0] += n
        sums[1] += wait
        sums[2] += run

    def _write(self, stored: Row, row: LifecycleRow, decision: Decision) -> None:
        tx, n = self._tx, stored[rows.N]
        position = self._position(stored, row, decision) if decision.needs_position else None
        self._pending.append(
            rows.save_parameters(stored, decision.changes, position, logged=bool(decision.log))
        )
        for entry in decision.log:
            tx.connection.execute(SQL.insert_log, log_insertion(n, entry))
        for point in decision.checkpoints:
            values = (n, point.step, point.value, point.attempt, point.at)
            tx.connection.execute(SQL.put_step, values)
        tx.touch(row.id)
        tx.work = tx.work or decision.needs_position

    def _position(self, stored: Row, row: LifecycleRow, decision: Decision) -> int:
        priority, key = stored[rows.PRIORITY], stored[rows.LIMIT_KEY]
        gate = decision.changes.get("gate", row.gate)
        # A job that moves to its next gate keeps its order of arrival.
        moves = row.gate is not None and gate is not None
        arrival = (row.position or 0) if moves else self._tx.next_position()
        if key is not None:
            self.flush()
        order = order_of(row.queue, gate, priority)
        return PositionAllocator(self._tx.connection).assign(order, key, arrival)

    def update_dependents(self, now: Instant) -> None:
        """Update the dependents of ended jobs, iteratively: a chain may exceed the stack."""
        if self._updating_dependents:
            return
        self._updating_dependents = True
        connection = self._tx.connection
        while self._ended:
            n, parent, ended = self._ended.popleft()
            waiting = fetch_all(connection, SQL.open_dependents, (n,))
            connection.execute(SQL.close_edges_of_parent, (n,))
            for (child,) in waiting:
                found = self.lifecycle(UUID(bytes=child))
                if found is not None:
                    self.write(*found, decide.parent_ended(found[1], parent, ended, now), now)
        self._updating_dependents = False

    def suspend(self, job_id: UUID, awaits: Sequence[UUID], now: Instant) -> ApplyResult:
        """Make a job wait for the jobs in `awaits` that have not ended."""
        self.invalidate()
        found = self.lifecycle(job_id)
        assert found is not None
        parents = load_parents(self._tx.connection, awaits)
        waits_for = [
            id_
            for id_, (_, parent) in parents.items()
            if parent.open and parent.owner == found[0][rows.OWNER]
        ]
        insert_edges(self._tx.connection, found[0][rows.N], parents, waits_for)
        return self.write(*found, decide.after_suspend(found[1], len(waits_for), now), now)

    def invalidate(self) -> None:
        """Drop the prefetched rows, because other code is about to write."""
        self.flush()
        self._rows.clear()

    def flush(self) -> None:
        if self._pending:
            self._tx.connection.executemany(SQL.save_job, self._pending)
            self._pending = []

    def finish(self) -> None:
        self.flush()
        for key, sums in self._rollups.items():
            self._tx.connection.execute(SQL.add_rollup, (*key, *sums))


def load_parents(
    connection: apsw.Connection, ids: Sequence[UUID]
) -> dict[UUID, tuple[int, Parent]]:
    """Return the existing jobs among `ids` with their numbers, in the order of `ids`."""
    keys = {job_id.bytes: job_id for job_id in ids}
    found = fetch_all(connection, SQL.get_parents, (apsw.carray(tuple(keys)),)) if keys else []
    parents = {
        keys[id_]: (n, Parent(keys[id_], owner, State(state))) for n, id_, owner, state in found
    }
    return {id_: parents[id_] for id_ in ids if id_ in parents}


def insert_edges(
    connection: apsw.Connection,
    child: int,
    parents: dict[UUID, tuple[int, Parent]],
    waits_for: Sequence[UUID],
) -> None:
    """Store the dependencies of a job, and mark the parents that it waits for as awaited."""
    if not parents:
        return
    ordinal = int(fetch_value(connection, SQL.next_edge_ordinal, (child,)))
    open_parents = set(waits_for)
    connection.executemany(
        SQL.put_edge,
        [
            (child, n, number, id_.bytes, id_ in open_parents)
            for number, (id_, (n, _)) in enumerate(parents.items(), ordinal)
        ],
    )
    connection.executemany(SQL.mark_awaited, [(parents[id_][0],) for id_ in waits_for])
