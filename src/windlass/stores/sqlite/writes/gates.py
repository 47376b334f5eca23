"""Gates: admission of waiting jobs when a limit has capacity.

Each permit stores whether it holds a slot, and for rate limits when its attempt started. It is
written in the transaction that changes its job (`permits`). So a call can open many gates in a few
statements, whatever the number of earlier permits.
"""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple
from uuid import UUID

import apsw

from windlass.core.admission import gates
from windlass.core.admission.gates import BATCH, rank
from windlass.core.admission.limit import Limit
from windlass.core.admission.permits import free_slots
from windlass.core.clock import Instant
from windlass.stores.sqlite.connection import fetch_all, fetch_one, fetch_value
from windlass.stores.sqlite.queries import SQL
from windlass.stores.sqlite.rows import (
    FENCE,
    GATES,
    STARTED_AT,
    N,
    Row,
    gate_after,
    gate_names,
    limit_names,
)
from windlass.stores.sqlite.writes.permits import PermitWriter
from windlass.stores.sqlite.writes.positions import PositionAllocator, QueueOrder, order_of
from windlass.stores.sqlite.writes.write_transaction import WriteTransaction

_start_group = itemgetter(GATES, STARTED_AT, FENCE)
_KEY, _GATE = 3, 5  # indexes in a row of `admissible_jobs`
# Appended to a limit's name, these enclose the names of all its gates per key.
_FIRST, _BEYOND = "\x1f", "\x20"


class _OpenedGate(NamedTuple):
    """A gate that was opened, with the capacity that it had before."""

    limit: Limit | None
    free: int
    started: int  # counted starts, with the jobs admitted now

    @property
    def rate_exhausted(self) -> bool:
        """Return whether the rate limit allows no more starts for now."""
        limit = self.limit
        return limit is not None and limit.starts is not None and self.started >= limit.starts


def open_gates(tx: WriteTransaction, now: Instant) -> set[int]:
    """Admit jobs at the gates that this call affected; return their numbers."""
    if not (tx.gates_to_check or tx.may_release or tx.ended):
        return set()
    permits = PermitWriter(tx.connection)
    _release_permits(tx, permits, now)
    admitted: set[int] = set()
    while tx.gates_to_check:
        names = _next_gates(tx.gates_to_check)
        tx.gates_to_check.difference_update(names)
        admitted.update(_open(tx, permits, names, now))
    permits.write()
    return admitted


def _next_gates(names: set[str]) -> list[str]:
    """Return the gates of the lowest rank, in order: no job moves from one of them to another."""
    lowest = min(map(rank, names))
    return sorted(gate for gate in names if rank(gate) == lowest)


def _release_permits(tx: WriteTransaction, permits: PermitWriter, now: Instant) -> None:
    """Delete the released permits; keep those whose start counts, without their slot."""
    if not (tx.may_release or tx.ended):
        return
    rate_limits = tx.rate_limit_names(now)
    rated = (
        {gate for gate in tx.gates_to_check if gates.limit_name(gate) in rate_limits}
        if rate_limits
        else set()
    )
    if tx.ended:
        slots: dict[str, int] = {}
        for names, count in tx.ended_gates.items():
            for gate in gate_names(names):
                slots[gate] = slots.get(gate, 0) + count
        permits.end(tx.ended, slots, rated & slots.keys())
        tx.ended, tx.ended_gates = [], Counter()
    if tx.may_release:
        permits.release(tx.may_release, rated)
        tx.may_release = []


def _open(tx: WriteTransaction, permits: PermitWriter, names: list[str], now: Instant) -> list[int]:
    connection = tx.connection
    connection.execute(SQL.clear_next_check, (apsw.carray(tuple(names)),))
    admitted: list[Row] = []
    opened: dict[str, _OpenedGate] = {}
    for name, limit_gates in groupby(names, gates.limit_name):
        limit = tx.limit(name, now)
        since = None if limit is None or limit.starts is None else now - limit.length
        counts = permits.count(list(limit_gates), since)
        free = {gate: free_slots(limit, held, started) for gate, held, started in counts}
        rows = _admissible(connection, free, now)
        per_gate = Counter([row[_GATE] for row in rows])
        if rows:
            permits.grant(array("q", [row[0] for row in rows]), per_gate, now)
            admitted += rows
        if since is not None or max(free.values(), default=0) > BATCH:
            for gate, _, started in counts:
                opened[gate] = _OpenedGate(limit, free[gate], started + per_gate[gate])
    _admit(tx, admitted, now)
    _schedule_checks(connection, opened, now)
    return [row[0] for row in admitted]


def _admissible(connection: apsw.Connection, free: dict[str, int], now: Instant) -> list[Row]:
    """Return the first jobs at each gate, up to its free slots; one query per distinct number."""
    by_limit: dict[int, list[str]] = {}
    for gate, slots in free.items():
        if slots:
            by_limit.setdefault(min(slots, BATCH), []).append(gate)
    rows: list[Row] = []
    for limit, names in by_limit.items():
        parameters = (apsw.carray(tuple(names)), now, limit)
        rows += json.loads(fetch_value(connection, SQL.admissible_jobs, parameters))
    if len(by_limit) > 1:
        rows.sort(key=itemgetter(_GATE))
    return rows


def _admit(tx: WriteTransaction, admitted: list[Row], now: Instant) -> None:
    """Move jobs to their next gate, or into their queue."""
    if not admitted:
        return
    targets: dict[QueueOrder, list[Row]] = {}
    group: list[Row] = []
    last: tuple[str, int, str, str] | None = None
    for row in admitted:  # ordered by gate: consecutive jobs mostly have the same target
        _, queue, priority, _, names, gate, _ = row
        if (queue, priority, names, gate) != last:
            last = (queue, priority, names, gate)
            group = targets.setdefault(order_of(queue, gate_after(names, gate), priority), [])
        group.append(row)
    allocator = PositionAllocator(tx.connection)
    positions: dict[str | None, dict[int, int]] = {}
    for order, rows in targets.items():
        # A job that moves to its next gate keeps its order of arrival.
        arrivals = tx.next_positions(len(rows)) if order.gate is None else [r[-1] for r in rows]
        assigned = allocator.assign_many(order, [row[_KEY] for row in rows], arrivals)
        by_number = zip([row[0] for row in rows], assigned, strict=True)
        positions.setdefault(order.gate, {}).update(by_number)
    if tx.changed_jobs is not None:
        numbers = array("q", [row[0] for row in admitted])
        tx.changed_jobs += [
            UUID(bytes=job_id)
            for (job_id,) in fetch_all(tx.connection, SQL.get_ids, (apsw.carray(numbers),))
        ]
    for next_gate, assigned_positions in positions.items():
        if next_gate is None:
            tx.connection.execute(SQL.admit_to_queue, (now, json.dumps(assigned_positions)))
            tx.work = True
        else:
            tx.connection.execute(SQL.admit_to_gate, (next_gate, json.dumps(assigned_positions)))
            tx.gates_to_check.add(next_gate)


def _with_jobs(connection: apsw.Connection, names: list[str]) -> list[str]:
    rows = fetch_all(connection, SQL.gates_with_jobs, (apsw.carray(tuple(names)),)) if names else []
    return [gate for (gate,) in rows]


def _schedule_checks(
    connection: apsw.Connection, opened: dict[str, _OpenedGate], now: Instant
) -> None:
    """Set the next check of gates that time alone can open. Others open when a job ends."""
    timed = [name for name, gate in opened.items() if gate.free > BATCH or gate.rate_exhausted]
    for gate in _with_jobs(connection, timed):
        limit, free, started = opened[gate]
        at = now
        if free <= BATCH and limit is not None and limit.starts is not None:
            parameters = (gate, now, limit.starts, now - limit.length, started - limit.starts)
            at = fetch_value(connection, SQL.limiting_start, parameters) + limit.length
        connection.execute(SQL.set_next_check, (gate, at))


def record_starts(tx: WriteTransaction, claimed: Sequence[Row], now: Instant) -> None:
    """Record the starts of claimed jobs at rate-limited gates; other limits do not need them."""
    gated = [row for row in claimed if row[GATES] is not None]
    rate_limits = tx.rate_limit_names(now) if gated else None
    if not rate_limits:
        return
    groups: dict[tuple[str, Instant, int], list[int]] = {}  # mostly one per claim
    for row in gated:
        groups.setdefault(_start_group(row), []).append(row[N])
    for (names, at, fence), numbers in groups.items():
        if not rate_limits.isdisjoint(limit_names(names)):
            parameters = (apsw.carray(array("q", numbers)), at, fence)
            tx.connection.execute(SQL.record_starts, parameters)


def limit_changed(tx: WriteTransaction, limit: str) -> None:
    """Make the gates of a changed limit due, so that the next sweep admits jobs."""
    tx.limits_changed()
    connection = tx.connection
    keys = (limit + _FIRST, limit + _BEYOND)
    # A rate limit needs the starts of permits, which a concurrency limit did not record.
    PermitWriter(connection).refresh((limit, *keys))
    for gate in _with_jobs(connection, [limit]):
        connection.execute(SQL.set_next_check, (gate, 0))
    row = fetch_one(connection, SQL.next_gate_with_jobs, keys)
    while row is not None:
        connection.execute(SQL.set_next_check, (row[0], 0))
        row = fetch_one(connection, SQL.next_gate_with_jobs, (row[0], keys[1]))


def clean_up(connection: apsw.Connection, now: Instant, limit: int) -> None:
    """Delete starts that no longer count; fix wrong counters and check those gates again."""
    permits = PermitWriter(connection)
    permits.delete_idle(now, limit)
    permits.write()
    for gate in _with_jobs(connection, permits.fix_counts()):
        connection.execute(SQL.set_next_check, (gate, 0))


def due(connection: apsw.Connection, now: Instant, limit: int) -> list[Row]:
    """Return the first waiting job of each gate whose check is due."""
    return fetch_all(connection, SQL.due_gate_heads, (now, limit))
