"""Permits of gates: held slots, and starts that count towards a rate limit.

The row of a gate contains counters of its permits, which each write updates. Most writes compute
their change without reading permits, and changes within one call cancel out. If a write affects
another number of permits than expected, the gate is recounted.
"""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import apsw

from windlass.core.admission.limit import LIMIT
from windlass.core.clock import Instant
from windlass.stores.sqlite.connection import fetch_all, fetch_value
from windlass.stores.sqlite.queries import SQL

_ANY_TIME = 2**63 - 1


class PermitWriter:
    """Writes the permits of one call. `write` stores the changed counters at the end."""

    __slots__ = ("_connection", "_holding", "_permits")

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._permits: dict[str, int] = {}  # by gate: change of its counter
        self._holding: dict[str, int] = {}

    def write(self) -> None:
        permits, holding = self._permits, self._holding
        names = permits.keys() | holding.keys()
        changes = [(gate, permits.get(gate, 0), holding.get(gate, 0)) for gate in names]
        if changes := [change for change in changes if change[1] or change[2]]:
            self._connection.execute(SQL.add_permit_counts, (json.dumps(changes),))

    def count(self, names: Sequence[str], after: Instant | None) -> list[tuple[str, int, int]]:
        """Return (gate, held slots, counted starts) of each of these gates where jobs wait.

        Counts starts after `after`, and permits that have not started. With None, the limit has no
        rate: starts left from an earlier rate limit are deleted.
        """
        gates = apsw.carray(tuple(names))
        if after is not None:
            self._delete_starts(names, after)
        stored = json.loads(fetch_value(self._connection, SQL.count_permits, (gates, after or 0)))
        permit_change, holding_change = self._permits.get, self._holding.get
        counts = [
            (gate, holding + holding_change(gate, 0), permits + permit_change(gate, 0))
            for gate, holding, permits in stored
        ]
        if after is None and any(permits > holding for _, holding, permits in counts):
            self._delete_starts(names, _ANY_TIME)
        return counts

    def _delete_starts(self, names: Sequence[str], until: Instant) -> None:
        for gate in names:
            self._connection.execute(SQL.delete_old_starts, (gate, until))
            if deleted := self._connection.changes():
                _add(self._permits, {gate: deleted}, -1)

    def grant(self, numbers: array[int], at: Mapping[str, int], now: Instant) -> None:
        """Grant permits to jobs that wait at gates; `at` is the number of jobs per gate."""
        jobs = apsw.carray(numbers)
        self._connection.execute(SQL.grant_permits, (now, jobs))
        if self._connection.changes() == len(numbers):
            _add(self._permits, at)
            _add(self._holding, at)
        else:  # a job returned to the gate before its attempt started
            self._connection.execute(SQL.regrant_permits, (now, jobs))
            self._recount(at)

    def end(self, numbers: Sequence[int], at: Mapping[str, int], rated: set[str]) -> None:
        """Release the slots of ended jobs, without reading their rows; `at` is slots per gate.

        At rate-limited gates (`rated`) the permits remain, because their recorded starts count.
        """
        connection, jobs, names = self._connection, array("q", numbers), json.dumps(list(rated))
        expected_kept = sum(at[gate] for gate in rated)
        expected_deleted = sum(at.values()) - expected_kept
        kept = deleted = 0
        if rated:
            connection.execute(SQL.release_slots, (apsw.carray(jobs), names))
            kept = connection.changes()
        if expected_deleted or kept != expected_kept:
            connection.execute(SQL.delete_permits_of_ended, (apsw.carray(jobs), names))
            deleted = connection.changes()
        if (kept, deleted) != (expected_kept, expected_deleted):
            self._recount(at)
            return
        _add(self._holding, at, -1)
        _add(self._permits, {gate: at[gate] for gate in at.keys() - rated} if rated else at, -1)

    def release(self, numbers: Sequence[int], rated: set[str]) -> None:
        """Delete the permits that these jobs no longer hold, according to their rows."""
        jobs = apsw.carray(array("q", numbers))
        self._count_jobs(jobs, -1)
        if rated:
            self._connection.execute(SQL.update_permits, (jobs,))
        self._connection.execute(SQL.delete_permits, (jobs, json.dumps(list(rated))))
        self._count_jobs(jobs)

    def refresh(self, limit: tuple[str, str, str]) -> None:
        """Update all permits of a limit from their jobs, and recount its gates.

        `limit` is the name of a gate, and two names between which its other gates lie. Reads only
        the rows of the jobs, so it corrects any earlier counts.
        """
        connection = self._connection
        if numbers := [n for (n,) in fetch_all(connection, SQL.jobs_with_permit, limit)]:
            connection.execute(SQL.update_permits, (apsw.carray(array("q", numbers)),))
        if names := [gate for (gate,) in fetch_all(connection, SQL.gates_of_limit, limit)]:
            self._recount(names)

    def delete_idle(self, now: Instant, limit: int) -> None:
        parameters = {"kind": LIMIT, "now": now, "limit": limit}
        rows = fetch_all(self._connection, SQL.delete_idle_permits, parameters)
        _add(self._permits, Counter(gate for (gate,) in rows), -1)

    def fix_counts(self) -> list[str]:
        """Recount gates with wrong counters and return them. Call it after `write`."""
        if names := [gate for (gate,) in fetch_all(self._connection, SQL.miscounted_gates)]:
            self._recount(names)
        return names

    def _count_jobs(self, jobs: object, sign: int = 1) -> None:
        """Add the permits of these jobs to the changes; -1 subtracts them before a write."""
        counts = json.loads(fetch_value(self._connection, SQL.permit_counts, (jobs,)))
        for gate, permits, holding in counts:
            _add(self._permits, {gate: permits}, sign)
            _add(self._holding, {gate: holding}, sign)

    def _recount(self, names: Collection[str]) -> None:
        gates = apsw.carray(tuple(names))
        self._connection.execute(SQL.recount_gates, (gates,))
        self._connection.execute(SQL.delete_idle_gates, (gates,))
        for gate in names:
            self._permits.pop(gate, None)
            self._holding.pop(gate, None)


def _add(counts: dict[str, int], changes: Mapping[str, int], sign: int = 1) -> None:
    for gate, change in changes.items():
        counts[gate] = counts.get(gate, 0) + sign * change
