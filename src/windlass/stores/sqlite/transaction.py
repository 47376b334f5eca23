"""A write transaction, as the calls in it see it."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import apsw

from windlass.core.clock import Instant
from windlass.core.gate import LIMIT
from windlass.stores.sqlite.connection import (
    single,
)
from windlass.stores.sqlite.queries import SQL


class Tx:
    """A write transaction, as the calls in it see it."""

    __slots__ = (
        "_limited", "_serial", "_written", "connection", "elsewhere", "knocks", "now", "touched",
        "work",
    )  # fmt: skip

    def __init__(
        self, connection: apsw.Connection, now: Callable[[], Instant], *, followed: bool
    ) -> None:
        self.connection = connection
        self.now = now
        self.work = False  # something may have become claimable
        self.elsewhere = False  # another process was seen to have written
        self.touched: list[UUID] | None = [] if followed else None  # jobs that have news
        self.knocks: set[str] = set()  # gates to be looked at before the call returns
        self._limited: frozenset[str] | None = None
        self._serial: int | None = None
        self._written = True

    def _last(self) -> int:
        if self._serial is None:
            self._serial = int(single(self.connection, SQL.last_serial))
        return self._serial

    def touch(self, job_id: UUID) -> None:
        if self.touched is not None:
            self.touched.append(job_id)

    def limited(self) -> frozenset[str]:
        """The names of all limits; in most files there is none."""
        if self._limited is None:
            found = self.connection.execute(SQL.limited, (LIMIT, self.now()))
            self._limited = frozenset(name for (name,) in found)
        return self._limited

    def limits_changed(self) -> None:
        self._limited = None

    def arrivals(self, count: int) -> int:
        """The first of `count` new numbers for jobs: their rows will show that they are taken."""
        first = self._last() + 1
        self._serial = first + count - 1
        return first

    def position(self) -> int:
        """A new number for a place in line, and a note that it is taken."""
        self._serial = self._last() + 1
        self._written = False
        return self._serial

    def remember(self) -> None:
        """Note what was given so far, because rows that show it are about to go."""
        self._last()
        self._written = False

    def finish(self) -> None:
        if not self._written:
            self.connection.execute(SQL.set_serial, (self._serial,))
