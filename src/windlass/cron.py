"""Ticks of schedules: cron expressions in a time zone (by cronsim), and intervals."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

from windlass.core.clock import SECOND, Instant, from_datetime, to_datetime
from windlass.core.errors import ConfigurationError, InvalidArgumentError
from windlass.core.schedule import Schedule, Ticks, interval

MIN_INTERVAL = 1.0  # seconds between two ticks
_NAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


def ticks_of(schedule: Schedule) -> Ticks:
    """Return the ticks of a schedule."""
    if schedule.cron is not None:
        return cron(schedule.cron, schedule.tz)
    assert schedule.every is not None, "a schedule has a cron expression or an interval"
    return interval(schedule.anchor, schedule.every)


def cron(text: str, tz: str) -> Ticks:
    """Return the ticks of a cron expression, in local time of a time zone.

    Five fields, or six with seconds first. When daylight saving time changes, it behaves like
    Debian's cron. A fixed time that is skipped ticks right after the change. A fixed time that
    occurs twice ticks the first time. If minute or hour starts with `*`, every match ticks.
    """
    if not isinstance(text, str):
        raise InvalidArgumentError(f"cron is {text!r:.80}; it must be a string")
    zone = _zone(tz)
    expression = _NAMES.get(text.strip().lower(), text)

    def ticks(after: Instant) -> Iterator[Instant]:
        for moment in _cron_times(expression, after, zone):
            tick = from_datetime(moment)
            if tick > after:  # in an hour that occurs twice, cronsim starts with the first one
                yield tick

    try:
        first = next(ticks(0), None)
    except _CronError as error:
        raise InvalidArgumentError(
            f"cron is {text!r}: {error}; write minute, hour, day of month, month and day of week, "
            'such as "*/5 * * * *" or "30 3 * * mon-fri"'
        ) from None
    if first is None:
        raise InvalidArgumentError(f"cron is {text!r}, which never matches a date")
    return ticks


class _CronError(Exception):
    """Error of cronsim, as a class that needs no import of cronsim."""


def _cron_times(text: str, after: Instant, zone: tzinfo) -> Iterator[datetime]:
    from cronsim import CronSim, CronSimError  # noqa: PLC0415 - only needed for schedules

    try:
        return CronSim(text, to_datetime(after).astimezone(zone))
    except CronSimError as error:
        raise _CronError(str(error).lower()) from None


@lru_cache(maxsize=64)
def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError, TypeError):
        pass
    known = available_timezones()
    if not known:
        raise ConfigurationError(
            f"time zone {name!r} cannot be found: this machine has no time zone data; "
            "pip install tzdata"
        )
    near = difflib.get_close_matches(str(name), sorted(known), 3, 0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else 'write one such as "Europe/Berlin"'
    raise InvalidArgumentError(f"unknown time zone {name!r}; {hint}")


def interval_microseconds(every: float) -> int:
    """Convert an interval from seconds to microseconds."""
    if every < MIN_INTERVAL:
        raise InvalidArgumentError(f"every is {every:g} s; it must be {MIN_INTERVAL:g} s or more")
    return round(every * SECOND)
