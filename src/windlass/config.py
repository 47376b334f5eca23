"""Settings, and the only reader of the environment.

An argument wins over the environment, the environment over the default. (`windlass.toml` joins this
list with the command line.)
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from datetime import timedelta

from windlass.core.errors import InvalidArgumentError

DEFAULT_URL = "sqlite:///windlass.db"
_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")

Duration = float | int | str | timedelta


def store_url(argument: str | None = None, environment: Mapping[str, str] | None = None) -> str:
    """Where the jobs are kept: the argument, WINDLASS_URL, or ./windlass.db."""
    known = os.environ if environment is None else environment
    return argument or known.get("WINDLASS_URL") or DEFAULT_URL


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
