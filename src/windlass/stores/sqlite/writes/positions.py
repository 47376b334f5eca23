"""Queue positions of new jobs, fair between limit keys: core's `fair_position`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import apsw

from windlass.core.admission import queue_position
from windlass.core.admission.limit import KEY
from windlass.stores.sqlite.connection import fetch_one
from windlass.stores.sqlite.queries import SQL


class QueueOrder(NamedTuple):
    """One ordered sequence: the jobs of one priority in a queue, or at a gate (of any queue)."""

    queue: str
    gate: str | None
    priority: int


def order_of(queue: str, gate: str | None, priority: int) -> QueueOrder:
    return QueueOrder("" if gate else queue, gate, priority)


class _Bounds:
    """First position of a sequence, and the last position of each loaded limit key."""

    __slots__ = ("first", "last")

    def __init__(self) -> None:
        self.first: int | None = None
        self.last: dict[str, int | None] = {}

    def lower(self, position: int | None) -> None:
        if position is not None and (self.first is None or position < self.first):
            self.first = position


class PositionAllocator:
    """Assigns positions to jobs that are written together, within one transaction.

    Reads the stored bounds once per key. The caller must write every assigned position.
    """

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._bounds: dict[QueueOrder, _Bounds] = {}

    def assign(self, order: QueueOrder, key: str | None, arrival: int) -> int:
        bounds = self._bounds.get(order)
        if bounds is None:
            bounds = self._bounds[order] = _Bounds()
        position = arrival
        if key is not None:
            if key not in bounds.last:
                self._load(order, (key,))
            position = queue_position.fair_position(key, arrival, bounds.first, bounds.last[key])
            bounds.last[key] = position
        bounds.lower(position)
        return position

    def assign_many(
        self, order: QueueOrder, keys: Sequence[str | None], arrivals: Sequence[int]
    ) -> Sequence[int]:
        """Assign positions to several jobs, in order."""
        bounds = self._bounds.setdefault(order, _Bounds())
        distinct = {key for key in keys if key is not None}
        if not distinct:
            bounds.lower(min(arrivals, default=None))
            return arrivals
        if new := distinct - bounds.last.keys():
            self._load(order, new)
        first, last = bounds.first, bounds.last
        positions = []
        for key, arrival in zip(keys, arrivals, strict=True):
            position = arrival
            if key is not None:
                position = last[key] = queue_position.fair_position(key, arrival, first, last[key])
            if first is None or position < first:
                first = position
            positions.append(position)
        bounds.first = first
        return positions

    def _load(self, order: QueueOrder, keys: Iterable[str]) -> None:
        """Read the bounds of these keys, in one statement."""
        bounds = self._bounds.setdefault(order, _Bounds())
        names = apsw.carray(tuple(keys))
        if order.gate is None:
            sql, scope = SQL.queue_position_bounds, order.queue
        elif order.gate.startswith(KEY):
            sql, scope = SQL.key_gate_position_bounds, order.gate
        else:
            sql, scope = SQL.gate_position_bounds, order.gate
        row = fetch_one(self._connection, sql, (scope, order.priority, names))
        assert row is not None
        bounds.lower(row[0])
        bounds.last.update(json.loads(row[1]))
