"""When a schedule ticks: cron texts in a time zone, by cronsim, and intervals."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

from windlass.core.clock import SECOND, Instant, from_datetime, to_datetime
from windlass.core.errors import ConfigurationError, InvalidArgumentError
from windlass.core.schedule import Schedule, Ticks, interval

SHORTEST = 1.0  # seconds between two ticks
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
    if schedule.cron is not None:
        return cron(schedule.cron, schedule.tz)
    assert schedule.every is not None, "a schedule has a cron text or an interval"
    return interval(schedule.anchor, schedule.every)


def cron(text: str, tz: str) -> Ticks:
    """The ticks of a cron text, by the clocks on the walls of a time zone.

    Five fields, or six with seconds first. On the days when clocks change it is as in Debian's
    cron: a fixed time that the clocks skip ticks when they have skipped it, one that they show
    twice ticks the first time; where minute or hour begins with `*`, every real match ticks.
    """
    if not isinstance(text, str):
        raise InvalidArgumentError(f"cron is {text!r:.80}; it must be text")
    zone = _zone(tz)
    expression = _NAMES.get(text.strip().lower(), text)

    def ticks(after: Instant) -> Iterator[Instant]:
        for moment in _simulated(expression, after, zone):
            tick = from_datetime(moment)
            if tick > after:  # in an hour that comes twice, cronsim begins with the first one
                yield tick

    try:
        first = next(ticks(0), None)
    except _CronError as error:
        raise InvalidArgumentError(
            f"cron is {text!r}: {error}; write minute, hour, day of month, month and day of week, "
            'such as "*/5 * * * *" or "30 3 * * mon-fri"'
        ) from None
    if first is None:
        raise InvalidArgumentError(f"cron is {text!r}, and no such day ever comes")
    return ticks


class _CronError(Exception):
    """What cronsim says, in a class that needs no cronsim to be named."""


def _simulated(text: str, after: Instant, zone: tzinfo) -> Iterator[datetime]:
    from cronsim import CronSim, CronSimError  # noqa: PLC0415 - only where there are schedules

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
            f"time zone {name!r} cannot be looked up: this machine has no time zones; "
            "pip install tzdata"
        )
    near = difflib.get_close_matches(str(name), sorted(known), 3, 0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else 'write one such as "Europe/Berlin"'
    raise InvalidArgumentError(f"there is no time zone {name!r}; {hint}")


def microseconds(every: float) -> int:
    """An interval as a schedule keeps it."""
    if every < SHORTEST:
        raise InvalidArgumentError(f"every is {every:g} s; it must be {SHORTEST:g} s or more")
    return round(every * SECOND)
