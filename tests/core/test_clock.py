"""Instants: integer microseconds, converted exactly in both directions."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from windlass.core.clock import SECOND, SystemClock, after, from_datetime, to_datetime
from windlass.core.errors import InvalidArgumentError

AWARE = st.datetimes(
    min_value=datetime(1900, 1, 2),  # noqa: DTZ001 - the strategy adds the zone
    max_value=datetime(2200, 1, 1),  # noqa: DTZ001
    timezones=st.integers(-14, 14).map(lambda hours: timezone(timedelta(hours=hours))),
)


def test_the_epoch_is_zero() -> None:
    assert from_datetime(datetime(1970, 1, 1, tzinfo=UTC)) == 0
    assert to_datetime(0) == datetime(1970, 1, 1, tzinfo=UTC)


@settings(max_examples=60)
@given(AWARE)
def test_a_datetime_round_trips_to_the_microsecond(value: datetime) -> None:
    back = to_datetime(from_datetime(value))
    assert back == value
    assert back.utcoffset() == timedelta(0)


@settings(max_examples=60)
@given(st.integers(-(10**15), 10**16))
def test_an_instant_round_trips(instant: int) -> None:
    assert from_datetime(to_datetime(instant)) == instant


@settings(max_examples=60)
@given(AWARE, AWARE)
def test_instants_are_ordered_as_their_datetimes_are(one: datetime, other: datetime) -> None:
    assert (from_datetime(one) < from_datetime(other)) == (one < other)


def test_equal_datetimes_in_two_zones_are_one_instant() -> None:
    tokyo = timezone(timedelta(hours=9))
    assert from_datetime(datetime(2024, 1, 1, 9, tzinfo=tokyo)) == from_datetime(
        datetime(2024, 1, 1, tzinfo=UTC)
    )


def test_a_datetime_without_a_zone_is_refused_as_a_wrong_argument() -> None:
    with pytest.raises(InvalidArgumentError, match="no time zone"):
        from_datetime(datetime(2024, 1, 1))  # noqa: DTZ001 - under test


@pytest.mark.parametrize(
    ("seconds", "microseconds"),
    [(0, 0), (1, SECOND), (0.5, 500_000), (1e-6, 1), (0.1, 100_000), (-2, -2 * SECOND)],
)
def test_seconds_are_added_as_microseconds(seconds: float, microseconds: int) -> None:
    assert after(1_000, seconds) == 1_000 + microseconds
    assert type(after(1_000, seconds)) is int


def test_the_system_clock_returns_microseconds() -> None:
    before = time.time_ns() // 1000
    assert before <= SystemClock().now() <= time.time_ns() // 1000
