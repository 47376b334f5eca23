"""Write transaction of the SQLite store, shared by the calls of one group commit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from uuid import UUID

import apsw

from windlass.core.admission.limit import LIMIT, Limit, decode_limit
from windlass.core.clock import Instant
from windlass.core.versioned_record import Entry, unexpired
from windlass.stores.sqlite.connection import fetch_value
from windlass.stores.sqlite.queries import SQL
from windlass.stores.sqlite.rows import entry, gate_names


class WriteTransaction:
    """One write transaction: its connection, and effects to apply before or after the commit."""

    __slots__ = (
        "_limit_names",
        "_limits",
        "_rate_limit_names",
        "_serial",
        "_serial_saved",
        "changed_jobs",
        "connection",
        "ended",
        "ended_gates",
        "gates_to_check",
        "may_release",
        "now",
        "other_process_wrote",
        "work",
    )  # fmt: skip

    def __init__(
        self, connection: apsw.Connection, now: Callable[[], Instant], *, track_changes: bool
    ) -> None:
        self.connection = connection
        self.now = now
        self.work = False  # jobs may have become claimable
        self.other_process_wrote = False  # another process has written to the file
        self.changed_jobs: list[UUID] | None = [] if track_changes else None
        self.gates_to_check: set[str] = set()  # before the call returns
        self.may_release: list[int] = []  # jobs that may have released permits
        self.ended: list[int] = []  # jobs that have ended and released all permits
        self.ended_gates: Counter[str] = Counter()  # by `gates` column: number of ended jobs
        self._limit_names: frozenset[str] | None = None
        self._rate_limit_names: frozenset[str] | None = None
        self._limits: dict[str, tuple[Entry, Limit | None] | None] = {}
        self._serial: int | None = None
        self._serial_saved = True

    def _last_serial(self) -> int:
        if self._serial is None:
            self._serial = int(fetch_value(self.connection, SQL.last_serial))
        return self._serial

    def touch(self, job_id: UUID) -> None:
        """Record that a job changed, for readers that tail it."""
        if self.changed_jobs is not None:
            self.changed_jobs.append(job_id)

    def limit_names(self) -> frozenset[str]:
        """Return the names of all limits; most files have none."""
        if self._limit_names is None:
            rows = self.connection.execute(SQL.limit_names, (LIMIT, self.now()))
            self._limit_names = frozenset(name for (name,) in rows)
        return self._limit_names

    def limit(self, name: str, now: Instant) -> Limit | None:
        """Return the unexpired limit of this name; reads it once."""
        if name not in self._limits:
            row = self.connection.execute(SQL.get_record, (LIMIT, name)).fetchone()
            record = None if row is None else entry(row)
            self._limits[name] = None if record is None else (record, decode_limit(record.value))
        cached = self._limits[name]
        return cached[1] if cached is not None and unexpired(cached[0], now) else None

    def rate_limit_names(self, now: Instant) -> frozenset[str]:
        """Return the names of limits that count starts."""
        if self._rate_limit_names is None:
            rows = self.connection.execute(SQL.rate_limit_names, (LIMIT, now))
            self._rate_limit_names = frozenset(name for (name,) in rows)
        return self._rate_limit_names

    def limits_changed(self) -> None:
        self._limit_names = self._rate_limit_names = None
        self._limits.clear()

    def gates_changed(self, n: int, gates: Iterable[str]) -> None:
        """Record that a job may have released permits at these gates, or now waits there."""
        self.may_release.append(n)
        self.gates_to_check.update(gates)

    def jobs_ended(self, numbers: list[int], gates: list[str]) -> None:
        """Record that jobs have ended and released their permits for good."""
        self.ended += numbers
        self.ended_gates.update(gates)
        for names in set(gates):
            self.gates_to_check.update(gate_names(names))

    def next_serial(self) -> int:
        """Return a new serial for a job. The job's row stores it."""
        self._serial = serial = self._last_serial() + 1
        return serial

    def next_position(self) -> int:
        """Return a new queue position, and store it as used at the end of the transaction."""
        [number] = self.next_positions(1)
        return number

    def next_positions(self, count: int) -> range:
        """Return `count` consecutive new queue positions."""
        first = self._last_serial() + 1
        self._serial = first + count - 1
        self._serial_saved = False
        return range(first, first + count)

    def save_serial(self) -> None:
        """Store the last serial at the end, because the rows that contain it may be deleted."""
        self._last_serial()
        self._serial_saved = False

    def finish(self) -> None:
        if not self._serial_saved:
            self.connection.execute(SQL.set_serial, (self._serial,))
