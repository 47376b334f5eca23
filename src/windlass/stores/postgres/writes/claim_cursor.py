"""The position in a queue from which a claim reads: its head, unless many dead rows precede it.

A transaction that stays open, anywhere in the database, keeps all queue rows that were deleted
since. Each claim would step over all of them: within minutes it takes a quarter of a second instead
of half a millisecond. So a handle skips the head while the server reports many dead rows and the
scan is slow. In each queue and priority it starts at the jobs that it claimed some seconds ago.
Jobs that get a slightly lower position later, by a late commit or by fairness, are still found at
once.

A check of the head finds jobs at much lower positions. It runs in the background, so that no claim
pays for it, and takes at most a fiftieth of the time. If it finds a job before the start of the
claims, the next claims start there.
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

MANY_DEAD_ROWS = 10_000
COUNT_INTERVAL = 5.0  # seconds between two counts of dead rows
SLOW_SCAN = 0.002  # seconds of a head check, from which on claims skip the dead rows
HEAD_CHECK_RATIO = 50  # interval of head checks, as a multiple of their duration
MIN_HEAD_INTERVAL, MAX_HEAD_INTERVAL = 1.0, 10.0  # seconds between two head checks
HEAD_TIMEOUT = 10.0  # seconds that a head check may take
LAG = 2.0  # seconds by which the start stays behind the last claim
MAX_LAG_POSITIONS = 4_000  # positions that claims reread; limits the dead rows among them
MAX_PRIORITIES = 32  # per queue; each is a range to read
_HIGHEST, _LOWEST = 2**31 - 1, -(2**31)
_BEFORE_FIRST = -1


class _PriorityCursor:
    """Positions of the latest claims in one queue and priority."""

    __slots__ = ("_lagging", "_last", "_middle", "_shifted_at", "rewind_to", "rewind_used")

    def __init__(self, now: float) -> None:
        self._lagging = self._middle = self._last = 0
        self._shifted_at = now
        self.rewind_to: int | None = None  # a lower position where a job was found
        self.rewind_used = False  # whether a claim has started there

    @property
    def start(self) -> int:
        """Return the first position to read, inclusive: several jobs may share it."""
        return max(self._lagging, self._last - MAX_LAG_POSITIONS)

    def advance(self, position: int, now: float) -> None:
        self._last = max(self._last, position)
        if now >= self._shifted_at + LAG:
            self._lagging, self._middle, self._shifted_at = self._middle, self._last, now

    def read_after(self) -> int:
        """Return the position after which the next claim reads."""
        self.rewind_used = self.rewind_to is not None
        return (self.start if self.rewind_to is None else self.rewind_to) - 1

    def record_claim(self, positions: Sequence[int], now: float) -> None:
        """Stay at the rewound position as long as claims return only jobs from there."""
        last = max(positions, default=_BEFORE_FIRST)
        if _BEFORE_FIRST < last < self.start:
            self.rewind_to, self.rewind_used = last, False
            return
        if self.rewind_used:
            self.rewind_to, self.rewind_used = None, False
        if positions:
            self.advance(last, now)

    def record_head(self, position: int, now: float) -> bool:
        """Record the first position; return whether claims would have missed it."""
        if position >= self.start:
            self.advance(position, now)
            return False
        self.rewind_to, self.rewind_used = position, False
        return True


class ClaimCursor:
    """Start positions of the claims of one handle."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._many_dead = False
        self._counted_at = -math.inf
        self._head_checked_at = -math.inf
        self._scan_seconds = 0.0  # of the last head check
        self._cursors: dict[str, dict[int, _PriorityCursor]] = {}

    async def refresh(self, connection: Connection) -> None:
        """Count the dead rows, once per `COUNT_INTERVAL`."""
        if self._clock() < self._counted_at + COUNT_INTERVAL:
            return
        self._counted_at = self._clock()
        self._many_dead = await connection.fetchval(SQL.dead_queued_rows) > MANY_DEAD_ROWS
        if not self._many_dead:
            self._scan_seconds = 0.0
            self._cursors = {}

    def ranges(self, queues: Sequence[str]) -> list[Row]:
        """Return the ranges to read: (queue, max priority, min priority, after position)."""
        if not self._many_dead or self._scan_seconds < SLOW_SCAN:
            return full_ranges(queues)
        return [claim_range for queue in queues for claim_range in self._queue_ranges(queue)]

    def _queue_ranges(self, queue: str) -> Iterable[Row]:
        """Return a range for each claimed priority, and for the gaps between them."""
        highest = _HIGHEST
        for priority, cursor in sorted(self._cursors.get(queue, {}).items(), reverse=True):
            if priority < highest:
                yield queue, highest, priority + 1, _BEFORE_FIRST
            yield queue, priority, priority, cursor.read_after()
            highest = priority - 1
        yield queue, highest, _LOWEST, _BEFORE_FIRST

    def record_claim(self, rows: Sequence[JobRow]) -> None:
        """Record the jobs that a claim returned."""
        if not self._many_dead:
            return
        now = self._clock()
        positions: dict[tuple[str, int], list[int]] = defaultdict(list)
        for row in rows:
            positions[row.queue, row.priority].append(row.position or 0)
        for queue, priority in positions:
            cursors = self._cursors.setdefault(queue, {})
            if priority not in cursors:
                cursors[priority] = _PriorityCursor(now)
            if len(cursors) > MAX_PRIORITIES:  # then claims read the full range
                cursors.clear()
        for queue, cursors in self._cursors.items():
            for priority, cursor in cursors.items():
                cursor.record_claim(positions[queue, priority], now)

    # -- head check

    def head_check_due(self) -> bool:
        """Return whether a head check is due; the caller then has to run it."""
        now = self._clock()
        wait = min(max(HEAD_CHECK_RATIO * self._scan_seconds, MIN_HEAD_INTERVAL), MAX_HEAD_INTERVAL)
        if not any(self._cursors.values()) or now < self._head_checked_at + wait:
            return False
        self._head_checked_at = now
        return True

    async def check_head(self, connection: Connection, now: Instant | None) -> bool:
        """Read the first positions, and time it; return whether claims would have missed a job."""
        priorities = [
            (queue, priority) for queue, cursors in self._cursors.items() for priority in cursors
        ]
        if not priorities:
            return False  # there are few dead rows again
        started = self._clock()
        try:
            found = await connection.fetch(
                SQL.first_positions, now, *columns(priorities), timeout=HEAD_TIMEOUT
            )
        finally:
            self._head_checked_at = self._clock()
            self._scan_seconds = self._head_checked_at - started
        missed = False
        for queue, priority, position in found:
            cursor = self._cursors.get(queue, {}).get(priority)
            if cursor is not None and cursor.record_head(position, self._head_checked_at):
                missed = True
        return missed


def full_ranges(queues: Iterable[str]) -> list[Row]:
    """Return ranges that cover these queues completely."""
    return [(queue, _HIGHEST, _LOWEST, _BEFORE_FIRST) for queue in queues]
