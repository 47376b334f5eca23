"""Instants: integer microseconds since 1970, UTC. The public API converts them to datetimes.

Every store keeps integers exactly. They compare and add without time zone errors, and the hot path
converts none of them (docs/design/decisions/0001).
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Protocol

from windlass.core.errors import InvalidArgumentError

Instant = int

SECOND = 1_000_000
MINUTE = 60 * SECOND
MAX_INSTANT: Instant = 253_402_300_800 * SECOND - 1  # end of the year 9999
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Clock(Protocol):
    """The only source of time of a store."""

    def now(self) -> Instant: ...


class SystemClock:
    """The wall clock of this machine."""

    __slots__ = ()

    def now(self) -> Instant:
        return time.time_ns() // 1000


def after(instant: Instant, seconds: float) -> Instant:
    return instant + round(seconds * SECOND)


def minute_of(instant: Instant) -> Instant:
    """Return the start of its minute; rollups count attempts per minute."""
    return instant // MINUTE * MINUTE


def to_datetime(instant: Instant) -> datetime:
    return _EPOCH + timedelta(microseconds=instant)


def from_datetime(value: datetime) -> Instant:
    if value.tzinfo is None:
        raise InvalidArgumentError(
            f"{value!r} has no time zone; use an aware datetime: datetime.now(UTC)"
        )
    return (value - _EPOCH) // _MICROSECOND
