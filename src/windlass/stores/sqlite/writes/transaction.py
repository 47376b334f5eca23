"""A write transaction, as the calls in it see it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from uuid import UUID

import apsw

from windlass.core import records
from windlass.core.admission.gates import LIMIT, Limit, limit_of
from windlass.core.clock import Instant
from windlass.core.records import Entry
from windlass.stores.sqlite.connection import single
from windlass.stores.sqlite.queries import SQL
from windlass.stores.sqlite.rows import entry, gate_names


class Tx:
    """A write transaction, as the calls in it see it."""

    __slots__ = (
        "_limited", "_limits", "_rates", "_serial", "_written", "connection", "elsewhere", "ended",
        "ended_with", "gone", "knocks", "now", "touched", "work",
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
        self.gone: list[int] = []  # jobs that may have left theirs
        self.ended: list[int] = []  # jobs that have left theirs for good
        self.ended_with: Counter[str] = Counter()  # how many of these had which gates
        self._limited: frozenset[str] | None = None
        self._rates: frozenset[str] | None = None
        self._limits: dict[str, tuple[Entry, Limit | None] | None] = {}
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

    def limit(self, name: str, now: Instant) -> Limit | None:
        """The limit of this name that holds, looked up once."""
        if name not in self._limits:
            found = self.connection.execute(SQL.get_record, (LIMIT, name)).fetchone()
            known = None if found is None else entry(found)
            self._limits[name] = None if known is None else (known, limit_of(known.value))
        noted = self._limits[name]
        return noted[1] if noted is not None and records.alive(noted[0], now) else None

    def rates(self, now: Instant) -> frozenset[str]:
        """The names of those limits that count starts."""
        if self._rates is None:
            found = self.connection.execute(SQL.rated, (LIMIT, now))
            self._rates = frozenset(name for (name,) in found)
        return self._rates

    def limits_changed(self) -> None:
        self._limited = self._rates = None
        self._limits.clear()

    def leave(self, n: int, gates: Iterable[str]) -> None:
        """A job may leave room at these gates, or wait there from now on."""
        self.gone.append(n)
        self.knocks.update(gates)

    def end(self, numbers: list[int], gates: list[str]) -> None:
        """Jobs left room at their gates, and will not come back."""
        if numbers:
            self.ended += numbers
            self.ended_with.update(gates)
            for names in set(gates):
                self.knocks.update(gate_names(names))

    def arrival(self) -> int:
        """A new number for a job: its row will show that it is taken."""
        self._serial = serial = self._last() + 1
        return serial

    def position(self) -> int:
        """A new number for a place in line, and a note that it is taken."""
        [number] = self.positions(1)
        return number

    def positions(self, count: int) -> range:
        """As many, one behind the other."""
        first = self._last() + 1
        self._serial = first + count - 1
        self._written = False
        return range(first, first + count)

    def remember(self) -> None:
        """Note what was given so far, because rows that show it are about to go."""
        self._last()
        self._written = False

    def finish(self) -> None:
        if not self._written:
            self.connection.execute(SQL.set_serial, (self._serial,))
