"""Where in the line a claim begins to look: at its head, unless that is crowded with the dead.

A transaction that stays open, anywhere in the database, keeps every row of the line that was taken
since, and each claim would step over all of them: half a millisecond becomes a quarter of a second
within minutes. So while the server counts many dead rows, and the head is slow to read, a handle
begins behind what it took last, in each queue and priority, and looks at the head only as often as
that costs a hundredth of the time, or a tenth when it finds nothing else. A job that comes to lie
before that, for its transaction committed late, waits for the next look at the head; so does one
whose claim was broken off.
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
SLOW = 0.005  # seconds that it costs to step over them
EACH = 50e-6  # seconds that a job which is taken may cost beside that
SHARE, SHARE_IDLE = 100, 10
LONGEST = 10.0  # seconds between two looks at the head, at most
MOST_PRIORITIES = 32  # of one queue; each is a range to read
_HIGHEST, _LOWEST = 2**31 - 1, -(2**31)
_BEGINNING = -1


class Line:
    """What one handle knows of it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._crowded = False
        self._asked = -math.inf
        self._looked = -math.inf  # at the head
        self._cost = 0.0  # of that look, in seconds
        self._began: float | None = None  # the one that is under way
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
        if not self._avoids_the_head(SHARE):
            return self._from_the_head(queues)
        self._began = None
        return [part for queue in queues for part in self._parts(queue)]

    def ranges_when_idle(self, queues: Sequence[str]) -> list[Row] | None:
        """What to read when there was nothing in those: the head, unless that was it."""
        if self._began is not None or self._avoids_the_head(SHARE_IDLE):
            return None
        return self._from_the_head(queues)

    def _avoids_the_head(self, share: int) -> bool:
        if not self._crowded or self._cost < SLOW:
            return False
        return self._clock() < self._looked + min(share * self._cost, LONGEST)

    def _from_the_head(self, queues: Sequence[str]) -> list[Row]:
        self._began = self._clock()
        return whole(queues)

    def _parts(self, queue: str) -> Iterable[Row]:
        """Each priority of which something was taken, and whatever lies between them."""
        highest = _HIGHEST
        for priority, place in sorted(self._taken.get(queue, {}).items(), reverse=True):
            if priority < highest:
                yield queue, highest, priority + 1, _BEGINNING
            yield queue, priority, priority, place
            highest = priority - 1
        yield queue, highest, _LOWEST, _BEGINNING

    def took(self, rows: Sequence[JobRow]) -> None:
        """What the claim brought that read these ranges."""
        if self._began is not None:
            self._looked = self._clock()
            self._cost = max(0.0, self._looked - self._began - EACH * len(rows))
        if not self._crowded:
            return
        for row in rows:
            places = self._taken.setdefault(row.queue, {})
            places[row.priority] = max(places.get(row.priority, _BEGINNING), row.position or 0)
            if len(places) > MOST_PRIORITIES:  # then each claim reads all of it
                places.clear()


def whole(queues: Iterable[str]) -> list[Row]:
    """The ranges of all that these lines hold."""
    return [(queue, _HIGHEST, _LOWEST, _BEGINNING) for queue in queues]
