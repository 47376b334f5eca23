"""Cron expressions and time zones: ticks on ordinary days and around clock changes."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

import pytest

from windlass import cron as module
from windlass.core.clock import SECOND, from_datetime, to_datetime
from windlass.core.errors import ConfigurationError, InvalidArgumentError
from windlass.cron import cron, interval_microseconds

BERLIN, NEW_YORK = "Europe/Berlin", "America/New_York"


def local(text: str, tz: str, after: str, number: int) -> list[str]:
    """Return the first ticks after a local time, in local time."""
    zone = ZoneInfo(tz)
    start = from_datetime(datetime.fromisoformat(after).replace(tzinfo=zone))
    found = islice(cron(text, tz)(start), number)
    return [to_datetime(tick).astimezone(zone).strftime("%d %H:%M %z") for tick in found]


def test_ticks_follow_the_clocks_of_the_time_zone() -> None:
    assert local("30 9 * * mon-fri", BERLIN, "2026-06-04T12:00", 3) == [
        "05 09:30 +0200", "08 09:30 +0200", "09 09:30 +0200"
    ]  # fmt: skip
    assert local("0 3 * * *", NEW_YORK, "2026-01-01T12:00", 1) == ["02 03:00 -0500"]


def test_ticks_after_a_tick_do_not_include_it() -> None:
    assert local("0 * * * *", BERLIN, "2026-06-04T12:00", 1) == ["04 13:00 +0200"]


def test_a_cron_expression_may_begin_with_seconds() -> None:
    found = list(islice(cron("*/20 * * * * *", "UTC")(0), 3))
    assert found == [20 * SECOND, 40 * SECOND, 60 * SECOND]


def test_cron_names_are_supported() -> None:
    assert local("@daily", BERLIN, "2026-06-04T12:00", 1) == ["05 00:00 +0200"]
    assert local(" @Hourly ", BERLIN, "2026-06-04T12:30", 1) == ["04 13:00 +0200"]


# -- clocks go forward: in Berlin from 2 to 3 on 29 March, in New York on 8 March


def test_a_skipped_fixed_time_ticks_right_after_the_clock_change() -> None:
    assert local("30 2 * * *", BERLIN, "2026-03-28T12:00", 2) == [
        "29 03:00 +0200", "30 02:30 +0200"
    ]  # fmt: skip
    assert local("30 2 * * *", NEW_YORK, "2026-03-07T12:00", 2) == [
        "08 03:00 -0400", "09 02:30 -0400"
    ]  # fmt: skip


def test_a_wildcard_ticks_in_real_time_when_clocks_go_forward() -> None:
    assert local("*/30 * * * *", BERLIN, "2026-03-29T01:00", 3) == [
        "29 01:30 +0100", "29 03:00 +0200", "29 03:30 +0200"
    ]  # fmt: skip
    assert local("0 * * * *", NEW_YORK, "2026-03-08T00:30", 2) == [
        "08 01:00 -0500", "08 03:00 -0400"
    ]  # fmt: skip


# -- clocks go back: in Berlin from 3 to 2 on 25 October, in New York from 2 to 1 on 1 November


def test_a_fixed_time_that_occurs_twice_ticks_the_first_time() -> None:
    assert local("30 2 * * *", BERLIN, "2026-10-24T12:00", 2) == [
        "25 02:30 +0200", "26 02:30 +0100"
    ]  # fmt: skip
    assert local("30 1 * * *", NEW_YORK, "2026-10-31T12:00", 2) == [
        "01 01:30 -0400", "02 01:30 -0500"
    ]  # fmt: skip


def test_a_start_in_the_repeated_hour_does_not_tick_a_fixed_time_again() -> None:
    """From there, cronsim returns the first occurrence, which is in the past."""
    inside = from_datetime(datetime(2026, 10, 25, 1, 10, tzinfo=UTC))  # 02:10 for the second time
    found = next(cron("30 2 * * *", BERLIN)(inside))
    assert to_datetime(found) == datetime(2026, 10, 26, 1, 30, tzinfo=UTC)


def test_a_wildcard_ticks_in_real_time_when_clocks_go_back() -> None:
    assert local("*/30 * * * *", BERLIN, "2026-10-25T01:30", 5) == [
        "25 02:00 +0200", "25 02:30 +0200", "25 02:00 +0100", "25 02:30 +0100", "25 03:00 +0100"
    ]  # fmt: skip
    assert local("0 * * * *", NEW_YORK, "2026-11-01T00:30", 3) == [
        "01 01:00 -0400", "01 01:00 -0500", "01 02:00 -0500"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("tz", "around"),
    [
        (BERLIN, "2026-03-29"), (BERLIN, "2026-10-25"),
        (NEW_YORK, "2026-03-08"), (NEW_YORK, "2026-11-01"),
        ("Australia/Sydney", "2026-04-05"), ("Australia/Sydney", "2026-10-04"),
        ("Africa/Cairo", "2026-04-24"), ("Africa/Cairo", "2026-10-30"),  # at midnight
        ("Asia/Kathmandu", "2026-05-01"), ("UTC", "2026-03-29"),
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "text",
    [
        "30 2 * * *", "0,30 1,2,3 * * *", "*/20 * * * *", "0 * * * *", "15 0 * * *", "0 0 * * *",
        "*/15 2 * * *", "10 */2 * * *", "45 23 * * sun", "0 12 1 * *",
    ],
)  # fmt: skip
def test_the_ticks_are_the_same_from_any_start(text: str, tz: str, around: str) -> None:
    """Each ticker starts at the mark that it read; all must compute the same instants."""
    day = from_datetime(datetime.fromisoformat(around).replace(tzinfo=UTC))
    hours = 3600 * SECOND
    start, end = day - 40 * hours, day + 40 * hours
    ticks = cron(text, tz)
    whole = list(takewhile(lambda tick: tick <= end, ticks(start)))
    assert whole == sorted(set(whole))
    chance = random.Random(text + tz)
    for after in [*whole, *(chance.randrange(start, end) for _ in range(60))]:
        rest = [tick for tick in whole if tick > after][:3]
        assert list(islice(ticks(after), len(rest))) == rest


# -- invalid expressions


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("61 * * * *", "bad minute"),
        ("* * * *", "wrong number of fields"),
        ("0 0 30 2 *", "bad day-of-month"),
        ("@reboot", "wrong number of fields"),
        ("", "wrong number of fields"),
        (5, "it must be a string"),
    ],
)
def test_an_invalid_expression_is_refused_with_a_reason_and_an_example(text: str, why: str) -> None:
    with pytest.raises(InvalidArgumentError, match=why):
        cron(text, "UTC")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Europe/Berlim", "did you mean Europe/Berlin"),
        ("Europe", "did you mean"),
        ("../../etc/passwd", "unknown time zone"),
        ("", 'such as "Europe/Berlin"'),
    ],
)
def test_an_unknown_time_zone_is_refused_with_similar_names(name: str, hint: str) -> None:
    with pytest.raises(InvalidArgumentError, match=hint):
        cron("* * * * *", name)


def test_a_machine_without_time_zones_raises_an_error_with_advice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "available_timezones", set)
    with pytest.raises(ConfigurationError, match="pip install tzdata"):
        cron("* * * * *", "Moon/Tycho")


def test_an_interval_under_a_second_is_refused() -> None:
    assert interval_microseconds(1.5) == 1_500_000
    with pytest.raises(InvalidArgumentError, match="it must be 1 s or more"):
        interval_microseconds(0.5)
