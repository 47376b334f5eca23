"""Durations and rates as people write them: seconds, a timedelta, or words like "5m", "10/s"."""

from __future__ import annotations

import re
from datetime import timedelta

from windlass.core.errors import InvalidArgumentError

Duration = float | int | str | timedelta
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")


def seconds(value: Duration, what: str = "the duration") -> float:
    """A duration given as a number of seconds, a timedelta, or words like "5m" or "1h30m"."""
    if isinstance(value, timedelta):
        number = value.total_seconds()
    elif isinstance(value, str):
        text = value.strip().lower()
        parts = _PART.findall(text)
        if not parts or "".join(n + unit for n, unit in parts) != text.replace(" ", ""):
            raise InvalidArgumentError(
                f'{what} is {value!r}; write seconds, or words like "30s", "5m", "1h30m", "2d"'
            )
        number = sum(float(n) * _UNITS[unit] for n, unit in parts)
    else:
        try:
            number = float(value)
        except TypeError:
            raise InvalidArgumentError(
                f"{what} is {value!r}; write seconds, words or a timedelta"
            ) from None
    if not 0 <= number < float("inf"):
        raise InvalidArgumentError(f"{what} is {value!r}; it must be zero or more")
    return number


def rate(text: str) -> tuple[int, float]:
    """How many, in how many seconds: "100/1m"; a unit alone is one of it, as in "10/s"."""
    number, _, period = str(text).replace(" ", "").partition("/")
    if not (number.isascii() and number.isdigit() and period):
        raise InvalidArgumentError(
            f'the rate is {text!r}; write how many in which time: "10/s", "100/1m", "1000/12h"'
        )
    words = f"1{period}" if period.lower() in _UNITS else period
    return int(number), seconds(words, f"the period of the rate {text!r}")
