"""Where in the line a claim begins to look: at its head, unless that is crowded with the dead.

A transaction that stays open, anywhere in the database, keeps every row of the line that was taken
since, and each claim would step over all of them: half a millisecond becomes a quarter of a second
within minutes. So while the server counts many dead rows, a handle begins behind what it took last,
in each queue and priority, and looks at the head only as often as that costs a hundredth of the
time. A job that comes to lie before that, for its transaction committed late, waits for the next
look at the head; so does one whose claim was broken off.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence

from windlass.core.job import JobRow
from windlass.stores.postgres.connection import Connection, Row
from windlass.stores.postgres.queries import SQL

MANY = 20_000  # dead rows
ASK_EVERY = 5.0  # seconds between two looks at how many there are
SHARE = 100
LONGEST = 10.0  # seconds between two looks at the head, at most
_HIGHEST, _LOWEST = 2**31 - 1, -(2**31)
_BEGINNING = -1


class Line:
    """What one handle knows of it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._crowded = False
        self._asked = -math.inf
        self._head_at = -math.inf  # when it is looked at again
        self._began: float | None = None  # the look at the head that is under way
        self._taken: dict[str, dict[int, int]] = {}  # the last place, by queue and priority

    async def ask(self, connection: Connection) -> None:
        """See now and then whether it is crowded."""
        if self._clock() < self._asked + ASK_EVERY:
            return
        self._asked = self._clock()
        self._crowded = await connection.fetchval(SQL.dead_in_line) > MANY
        if not self._crowded:
            self._taken = {}

    def ranges(self, queues: Sequence[str]) -> list[Row]:
        """What to read, in order: (queue, highest priority, lowest, behind which place)."""
        now = self._clock()
        if not self._crowded or now >= self._head_at:
            self._began = now
            return whole(queues)
        self._began = None
        return [part for queue in queues for part in self._parts(queue)]

    def _parts(self, queue: str) -> Iterable[Row]:
        """Each priority of which something was taken, and whatever lies between them."""
        highest = _HIGHEST
        for priority, place in sorted(self._taken.get(queue, {}).items(), reverse=True):
            if priority < highest:
                yield queue, highest, priority + 1, _BEGINNING
            yield queue, priority, priority, place
            highest = priority - 1
        yield queue, highest, _LOWEST, _BEGINNING

    def took(self, rows: Iterable[JobRow]) -> None:
        """What the claim brought that read these ranges."""
        if self._began is not None:
            cost = self._clock() - self._began
            self._head_at = self._clock() + min(SHARE * cost, LONGEST)
        if not self._crowded:
            return
        for row in rows:
            places = self._taken.setdefault(row.queue, {})
            places[row.priority] = max(places.get(row.priority, _BEGINNING), row.position or 0)


def whole(queues: Iterable[str]) -> list[Row]:
    """The ranges of all that these lines hold."""
    return [(queue, _HIGHEST, _LOWEST, _BEGINNING) for queue in queues]
