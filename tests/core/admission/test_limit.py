"""Limits: rates, validation, names, and the record with declared limit and override."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from windlass.core.admission.limit import (
    MAX_LIMIT,
    Limit,
    LimitSetting,
    check_limit_name,
    decode_limit,
)
from windlass.core.duration import parse_rate
from windlass.core.errors import InvalidArgumentError


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("10/s", (10, 1.0)), ("100/m", (100, 60.0)), ("1000/h", (1000, 3600.0)),
        ("100/1m", (100, 60.0)), ("5/1h30m", (5, 5400.0)), (" 5 / 100 ms ", (5, 0.1)),
        ("1/D", (1, 86_400.0)),
    ],
)  # fmt: skip
def test_a_rate_text_is_a_number_of_starts_in_a_period(
    text: str, wanted: tuple[int, float]
) -> None:
    assert parse_rate(text) == wanted
    assert Limit(rate=text) == Limit(starts=wanted[0], period=wanted[1])


@pytest.mark.parametrize("text", ["", "10", "/s", "ten/s", "10/", "-1/s", "1.5/s", "²/s", 10, None])
def test_an_invalid_rate_is_refused(text: Any) -> None:
    with pytest.raises(InvalidArgumentError, match='"100/1m"'):
        parse_rate(text)


def test_an_invalid_period_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="the period of the rate '10/x'"):
        parse_rate("10/x")
    with pytest.raises(InvalidArgumentError, match="the period of the rate '10/60'"):
        parse_rate("10/60")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "needs concurrency= or rate="),
        ({"starts": 5}, "needs both"),
        ({"period": 5.0}, "needs concurrency= or rate="),
        ({"concurrency": 0}, "from 1 to 100,000"),
        ({"concurrency": MAX_LIMIT + 1}, "from 1 to 100,000"),
        ({"concurrency": True}, "an integer"),
        ({"concurrency": "5"}, "an integer"),
        ({"rate": "0/s"}, "starts is 0"),
        ({"rate": "5/0s"}, "between 1 ms and 10 years"),
        ({"rate": "5/s", "starts": 5, "period": 1.0}, "one rate"),
    ],
)
def test_an_invalid_limit_is_refused(given: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidArgumentError, match=why):
        Limit(**given)


def test_a_limit_has_a_readable_text() -> None:
    assert str(Limit(concurrency=2)) == "2 at once"
    assert str(Limit(concurrency=1000, rate="100/1m")) == "1,000 at once, 100 starts in 60 s"
    assert replace(Limit(concurrency=2), concurrency=3) == Limit(concurrency=3)


def test_an_override_takes_effect_instead_of_the_declared_limit() -> None:
    code, person = Limit(concurrency=5), Limit(rate="1/s")
    assert LimitSetting(declared=code).limit == code
    assert LimitSetting(declared=code, override=person).limit == person
    assert LimitSetting().limit is None
    both = LimitSetting(declared=code, override=person)
    assert LimitSetting.decode(both.encode()) == both
    assert decode_limit(both.encode()) == person
    assert decode_limit(None) is None


@pytest.mark.parametrize("name", ["", "render", "queue:", "task:", "key:", "Queue:x", "worker:x"])
def test_an_invalid_limit_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match="queue:NAME"):
        check_limit_name(name)
