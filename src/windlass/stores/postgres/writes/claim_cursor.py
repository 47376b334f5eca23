"""Where in the line a claim begins to read: at its head, unless that is crowded with the dead.

A transaction that stays open, anywhere in the database, keeps every row of the line that was taken
since, and each claim would step over all of them: half a millisecond becomes a quarter of a second
within minutes. So while the server counts many dead rows, and they are slow to step over, a handle
begins, in each queue and priority, behind what was taken some seconds ago. Whatever comes to stand
a little before others, for its transaction committed later or it was given a turn, is still found
at once.

What comes to stand further ahead is found by a look at the head, beside the claims, so that none of
them pays for it, and seldom enough that it costs a fiftieth of the time. If the line begins before
the place where we read, the next claims begin there.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from windlass.core.clock import Instant
from windlass.core.job.row import JobRow
from windlass.stores.postgres.connection import Connection, Row
from windlass.stores.postgres.queries import SQL
from windlass.stores.postgres.rows import columns

MANY = 10_000  # dead rows
ASK_EVERY = 5.0  # seconds between two questions how many there are
SLOW = 0.002  # seconds that it costs to step over them
SHARE = 50
SOONEST, LATEST = 1.0, 10.0  # seconds between two looks at the head
PATIENCE = 10.0  # seconds that a look may take
TRAIL = 2.0  # seconds that claims begin behind what was taken last
MOST_PLACES = 4_000  # and how far that may be: as many dead rows, or fewer, are stepped over
MOST_PRIORITIES = 32  # of one queue; each is a range to read
_HIGHEST, _LOWEST = 2**31 - 1, -(2**31)
_BEGINNING = -1


class _Trail:
    """How far the jobs of one queue and priority have been taken, of late."""

    __slots__ = ("_before", "_last", "_since", "_then", "back", "tried")

    def __init__(self, now: float) -> None:
        self._before = self._then = self._last = 0
        self._since = now
        self.back: int | None = None  # a place before all that, where a job was seen
        self.tried = False  # whether a claim has begun there

    @property
    def start(self) -> int:
        """The place to begin at, that one included: several jobs may share it."""
        return max(self._before, self._last - MOST_PLACES)

    def reached(self, place: int, now: float) -> None:
        self._last = max(self._last, place)
        if now >= self._since + TRAIL:
            self._before, self._then, self._since = self._then, self._last, now

    def behind(self) -> int:
        """Behind which place a claim reads."""
        self.tried = self.back is not None
        return (self.start if self.back is None else self.back) - 1

    def took(self, places: Sequence[int], now: float) -> None:
        """Go on where a job was seen, for as long as claims bring nothing but what stands there."""
        last = max(places, default=_BEGINNING)
        if _BEGINNING < last < self.start:
            self.back, self.tried = last, False
            return
        if self.tried:
            self.back, self.tried = None, False
        if places:
            self.reached(last, now)

    def saw(self, place: int, now: float) -> bool:
        """A job is the first of all at this place; whether it would not be found otherwise."""
        if place >= self.start:
            self.reached(place, now)
            return False
        self.back, self.tried = place, False
        return True


class Line:
    """What one handle knows of it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._many = False
        self._asked = -math.inf
        self._looked = -math.inf
        self._cost = 0.0  # of the last look, in seconds
        self._trails: dict[str, dict[int, _Trail]] = {}

    async def ask(self, connection: Connection) -> None:
        """See now and then whether many are dead."""
        if self._clock() < self._asked + ASK_EVERY:
            return
        self._asked = self._clock()
        self._many = await connection.fetchval(SQL.dead_in_line) > MANY
        if not self._many:
            self._cost = 0.0
            self._trails = {}

    def ranges(self, queues: Sequence[str]) -> list[Row]:
        """What to read, in order: (queue, highest priority, lowest, behind which place)."""
        if not self._many or self._cost < SLOW:
            return whole(queues)
        return [part for queue in queues for part in self._parts(queue)]

    def _parts(self, queue: str) -> Iterable[Row]:
        """Each priority of which something was taken, and whatever lies between them."""
        highest = _HIGHEST
        for priority, trail in sorted(self._trails.get(queue, {}).items(), reverse=True):
            if priority < highest:
                yield queue, highest, priority + 1, _BEGINNING
            yield queue, priority, priority, trail.behind()
            highest = priority - 1
        yield queue, highest, _LOWEST, _BEGINNING

    def took(self, rows: Sequence[JobRow]) -> None:
        """What a claim brought."""
        if not self._many:
            return
        now = self._clock()
        places: dict[tuple[str, int], list[int]] = defaultdict(list)
        for row in rows:
            places[row.queue, row.priority].append(row.position or 0)
        for queue, priority in places:
            trails = self._trails.setdefault(queue, {})
            if priority not in trails:
                trails[priority] = _Trail(now)
            if len(trails) > MOST_PRIORITIES:  # then each claim reads all of it
                trails.clear()
        for queue, trails in self._trails.items():
            for priority, trail in trails.items():
                trail.took(places[queue, priority], now)

    # -- the look at the head

    def wants_a_look(self) -> bool:
        """Whoever is told so, makes it."""
        now = self._clock()
        wait = min(max(SHARE * self._cost, SOONEST), LATEST)
        if not any(self._trails.values()) or now < self._looked + wait:
            return False
        self._looked = now
        return True

    async def look(self, connection: Connection, now: Instant | None) -> bool:
        """See where the line begins, and how slow that is; whether claims would not find it."""
        known = [(queue, each) for queue, trails in self._trails.items() for each in trails]
        if not known:
            return False  # the crowd is gone by now
        began = self._clock()
        try:
            found = await connection.fetch(SQL.heads, now, *columns(known), timeout=PATIENCE)
        finally:
            self._looked = self._clock()
            self._cost = self._looked - began
        missed = False
        for queue, priority, place in found:
            trail = self._trails.get(queue, {}).get(priority)
            if trail is not None and trail.saw(place, self._looked):
                missed = True
        return missed


def whole(queues: Iterable[str]) -> list[Row]:
    """The ranges of all that these lines hold."""
    return [(queue, _HIGHEST, _LOWEST, _BEGINNING) for queue in queues]
