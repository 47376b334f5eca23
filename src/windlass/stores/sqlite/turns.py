"""Where jobs come to stand in a line, so that keys take turns: core's `gate.place`."""

from __future__ import annotations

from typing import NamedTuple

import apsw

from windlass.core import gate
from windlass.stores.sqlite.connection import first
from windlass.stores.sqlite.queries import SQL


class Line(NamedTuple):
    """The jobs of one priority in a queue, or before a gate."""

    queue: str
    gate: str | None
    priority: int


class Turns:
    """Places for jobs that are written together, while nobody else comes or goes.

    What stood there before is looked up once for each key; all of it has to be written.
    """

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._first: dict[Line, int] = {}
        self._last: dict[tuple[Line, str], int | None] = {}

    def place(self, line: Line, key: str | None, arrival: int) -> int:
        if line.gate is not None:
            line = line._replace(queue="")  # there they stand together, whatever their queues
        position = arrival
        if key is not None:
            if (line, key) not in self._last:
                self._look_up(line, key)
            position = gate.place(key, arrival, self._first.get(line), self._last[line, key])
            self._last[line, key] = position
        self._note(line, position)
        return position

    def _look_up(self, line: Line, key: str) -> None:
        if line.gate is None:
            beside = first(self._connection, SQL.beside_in_line, (line.queue, line.priority, key))
        else:
            beside = first(self._connection, SQL.beside_at_gate, (line.gate, line.priority, key))
        assert beside is not None
        earliest, self._last[line, key] = beside
        if earliest is not None:
            self._note(line, earliest)

    def _note(self, line: Line, position: int) -> None:
        if position < self._first.setdefault(line, position):
            self._first[line] = position
