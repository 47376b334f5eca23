"""Where jobs come to stand in a line, so that keys take turns: core's `gate.place`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import apsw

from windlass.core.admission import gates
from windlass.stores.sqlite.connection import first
from windlass.stores.sqlite.queries import SQL


class Line(NamedTuple):
    """The jobs of one priority in a queue, or before a gate: there whatever their queues."""

    queue: str
    gate: str | None
    priority: int


def line_of(queue: str, before: str | None, priority: int) -> Line:
    return Line("" if before else queue, before, priority)


class _Beside:
    """Who stands in a line: the first of all, and the last of each key that was asked for."""

    __slots__ = ("first", "last")

    def __init__(self) -> None:
        self.first: int | None = None
        self.last: dict[str, int | None] = {}

    def note(self, position: int | None) -> None:
        if position is not None and (self.first is None or position < self.first):
            self.first = position


class Turns:
    """Places for jobs that are written together, while nobody else comes or goes.

    What stood there before is looked up once for each key; all of it has to be written.
    """

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._lines: dict[Line, _Beside] = {}

    def place(self, line: Line, key: str | None, arrival: int) -> int:
        beside = self._lines.get(line)
        if beside is None:
            beside = self._lines[line] = _Beside()
        position = arrival
        if key is not None:
            if key not in beside.last:
                self.look_up(line, (key,))
            position = gates.place(key, arrival, beside.first, beside.last[key])
            beside.last[key] = position
        beside.note(position)
        return position

    def places(
        self, line: Line, keys: Sequence[str | None], arrivals: Sequence[int]
    ) -> Sequence[int]:
        """The same for many, one behind the other."""
        beside = self._lines.setdefault(line, _Beside())
        known = {key for key in keys if key is not None}
        if not known:
            beside.note(min(arrivals, default=None))
            return arrivals
        if new := known - beside.last.keys():
            self.look_up(line, new)
        first, last = beside.first, beside.last
        found = []
        for key, arrival in zip(keys, arrivals, strict=True):
            its = arrival
            if key is not None:
                its = last[key] = gates.place(key, arrival, first, last[key])
            if first is None or its < first:
                first = its
            found.append(its)
        beside.first = first
        return found

    def look_up(self, line: Line, keys: Iterable[str]) -> None:
        """Whom jobs with these keys will stand beside: in one step for all of them."""
        beside = self._lines.setdefault(line, _Beside())
        some = apsw.carray(tuple(keys))
        if line.gate is None:
            found = first(self._connection, SQL.beside_in_line, (line.queue, line.priority, some))
        elif line.gate.startswith(gates.KEY):
            found = first(self._connection, SQL.beside_at_key, (line.gate, line.priority, some))
        else:
            found = first(self._connection, SQL.beside_at_gate, (line.gate, line.priority, some))
        assert found is not None
        beside.note(found[0])
        beside.last.update(json.loads(found[1]))
