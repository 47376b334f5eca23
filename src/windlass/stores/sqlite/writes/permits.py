"""Passes: who holds a slot at which gate, and whose start counts there.

How many there are is counted as they are written, and stands at the gate. Each write knows what it
adds and takes, mostly without a look, and what comes and goes in one call cancels out. A write that
changes another number of passes than it knows of has them counted anew.
"""

from __future__ import annotations

import json
from array import array
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

import apsw

from windlass.core.admission.gates import LIMIT
from windlass.core.clock import Instant
from windlass.stores.sqlite.connection import every, single
from windlass.stores.sqlite.queries import SQL

_ANY_TIME = 2**63 - 1


class Passes:
    """The writes of one call; `write` ends it."""

    __slots__ = ("_connection", "_held", "_passes")

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._passes: dict[str, int] = {}  # what is to be added to the counts of gates
        self._held: dict[str, int] = {}

    def write(self) -> None:
        passes, held = self._passes, self._held
        names = passes.keys() | held.keys()
        more = [(gate, passes.get(gate, 0), held.get(gate, 0)) for gate in names]
        if more := [one for one in more if one[1] or one[2]]:
            self._connection.execute(SQL.add_passes, (json.dumps(more),))

    def count(self, names: Sequence[str], after: Instant | None) -> list[tuple[str, int, int]]:
        """Of each of these gates where somebody waits: slots held, and starts that count.

        Those are the starts after an instant, and whoever may yet start; without one, none are,
        and what is left from when there was a rate is dropped.
        """
        some = apsw.carray(tuple(names))
        if after is not None:
            self._drop_starts(names, after)
        counts = json.loads(single(self._connection, SQL.count_passes, (some, after or 0)))
        more, more_held = self._passes.get, self._held.get
        found = [
            (gate, held + more_held(gate, 0), passes + more(gate, 0))
            for gate, held, passes in counts
        ]
        if after is None and any(passes > held for _, held, passes in found):
            self._drop_starts(names, _ANY_TIME)
        return found

    def _drop_starts(self, names: Sequence[str], until: Instant) -> None:
        for gate in names:
            self._connection.execute(SQL.drop_starts, (gate, until))
            if gone := self._connection.changes():
                _add(self._passes, {gate: gone}, -1)

    def grant(self, numbers: array[int], at: Mapping[str, int], now: Instant) -> None:
        """To jobs who wait at these gates, so many at each."""
        some = apsw.carray(numbers)
        self._connection.execute(SQL.grant_passes, (now, some))
        if self._connection.changes() == len(numbers):
            _add(self._passes, at)
            _add(self._held, at)
        else:  # one came back before it could start
            self._connection.execute(SQL.grant_again, (now, some))
            self._count_anew(at)

    def end(self, numbers: Sequence[int], at: Mapping[str, int], rated: set[str]) -> None:
        """Jobs have ended who held so many slots at these gates: their rows need not be read.

        Where starts count they were noted when they were, and their passes stay for that.
        """
        connection, some, names = self._connection, array("q", numbers), json.dumps(list(rated))
        to_stay = sum(at[gate] for gate in rated)
        to_go = sum(at.values()) - to_stay
        stay = gone = 0
        if rated:
            connection.execute(SQL.give_up_slots, (apsw.carray(some), names))
            stay = connection.changes()
        if to_go or stay != to_stay:
            connection.execute(SQL.leave_for_good, (apsw.carray(some), names))
            gone = connection.changes()
        if (stay, gone) != (to_stay, to_go):
            self._count_anew(at)
            return
        _add(self._held, at, -1)
        _add(self._passes, {gate: at[gate] for gate in at.keys() - rated} if rated else at, -1)

    def leave(self, numbers: Sequence[int], rated: set[str]) -> None:
        """Jobs may have left: take what their rows say that they hold no more."""
        some = apsw.carray(array("q", numbers))
        self._count(some, -1)
        if rated:
            self._connection.execute(SQL.judge, (some,))
        self._connection.execute(SQL.leave, (some, json.dumps(list(rated))))
        self._count(some)

    def judge(self, limit: tuple[str, str, str]) -> None:
        """Write down what all passes of a limit are worth now, and how many there are.

        Of the gate of a name, and of those between two others. By the rows of their jobs alone:
        whatever was counted before, it is right from here on.
        """
        connection = self._connection
        if numbers := [n for (n,) in every(connection, SQL.passed_by, limit)]:
            connection.execute(SQL.judge, (apsw.carray(array("q", numbers)),))
        if names := [gate for (gate,) in every(connection, SQL.gates_of_limit, limit)]:
            self._count_anew(names)

    def drop_idle(self, now: Instant, limit: int) -> None:
        asked = {"kind": LIMIT, "now": now, "limit": limit}
        gone = Counter(gate for (gate,) in every(self._connection, SQL.drop_idle_passes, asked))
        _add(self._passes, gone, -1)

    def mend(self) -> list[str]:
        """Once all is written: the gates whose counts were wrong, for whatever reason."""
        if names := [gate for (gate,) in every(self._connection, SQL.miscounted)]:
            self._count_anew(names)
        return names

    def _count(self, some: object, sign: int = 1) -> None:
        """What the passes of these jobs are worth: taken off before a change, added after it."""
        for gate, passes, held in json.loads(single(self._connection, SQL.worth, (some,))):
            _add(self._passes, {gate: passes}, sign)
            _add(self._held, {gate: held}, sign)

    def _count_anew(self, names: Collection[str]) -> None:
        some = apsw.carray(tuple(names))
        self._connection.execute(SQL.count_anew, (some,))
        self._connection.execute(SQL.forget_idle, (some,))
        for gate in names:
            self._passes.pop(gate, None)
            self._held.pop(gate, None)


def _add(counts: dict[str, int], more: Mapping[str, int], sign: int = 1) -> None:
    for gate, many in more.items():
        counts[gate] = counts.get(gate, 0) + sign * many
