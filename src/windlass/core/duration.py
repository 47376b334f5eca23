"""Parsing of durations (seconds, timedelta, "5m", "1h30m") and rates ("10/s", "100/1m")."""

from __future__ import annotations

import re
from datetime import timedelta

from windlass.core.errors import InvalidArgumentError

Duration = float | int | str | timedelta
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")


def to_seconds(value: Duration, what: str = "the duration") -> float:
    """Return a duration in seconds: a number, a timedelta, or text such as "5m" or "1h30m"."""
    if isinstance(value, timedelta):
        number = value.total_seconds()
    elif isinstance(value, str):
        text = value.strip().lower()
        parts = _PART.findall(text)
        if not parts or "".join(n + unit for n, unit in parts) != text.replace(" ", ""):
            raise InvalidArgumentError(
                f'{what} is {value!r}; write seconds, or text such as "30s", "5m", "1h30m", "2d"'
            )
        number = sum(float(n) * _UNITS[unit] for n, unit in parts)
    else:
        try:
            number = float(value)
        except TypeError:
            raise InvalidArgumentError(
                f'{what} is {value!r}; write seconds, text such as "5m", or a timedelta'
            ) from None
    if not 0 <= number < float("inf"):
        raise InvalidArgumentError(f"{what} is {value!r}; it must be zero or more")
    return number


def parse_rate(text: str) -> tuple[int, float]:
    """Return number and period in seconds of a rate: "100/1m"; "10/s" is "10/1s"."""
    number, _, period = str(text).replace(" ", "").partition("/")
    if not (number.isascii() and number.isdigit() and period):
        raise InvalidArgumentError(
            f'the rate is {text!r}; write NUMBER/PERIOD: "10/s", "100/1m", "1000/12h"'
        )
    text_period = f"1{period}" if period.lower() in _UNITS else period
    return int(number), to_seconds(text_period, f"the period of the rate {text!r}")
