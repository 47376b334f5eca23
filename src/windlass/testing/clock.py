"""Virtual clock for tests."""

from __future__ import annotations

from datetime import timedelta

from windlass.core.clock import Instant, after
from windlass.core.duration import Duration, to_seconds

START: Instant = 1_767_225_600 * 1_000_000  # 2026-01-01T00:00:00Z


class VirtualClock:
    """A store clock that a test moves: `advance` by a duration, `jump` to an instant."""

    def __init__(self, start: Instant = START) -> None:
        self._now = start

    def now(self) -> Instant:
        return self._now

    def advance(self, duration: Duration) -> Instant:
        """Move by seconds (backward if negative), a text such as "5m", or a timedelta."""
        if isinstance(duration, str | timedelta):
            duration = to_seconds(duration)
        self._now = after(self._now, duration)
        return self._now

    def jump(self, instant: Instant) -> None:
        self._now = instant
