"""Time that moves only when told to."""

from __future__ import annotations

from windlass.core.clock import Instant, after

START: Instant = 1_767_225_600 * 1_000_000  # 2026-01-01T00:00:00Z


class VirtualClock:
    """A store's clock for tests. `advance` moves it forward, `jump` anywhere."""

    def __init__(self, start: Instant = START) -> None:
        self._now = start

    def now(self) -> Instant:
        return self._now

    def advance(self, seconds: float) -> Instant:
        self._now = after(self._now, seconds)
        return self._now

    def jump(self, instant: Instant) -> None:
        self._now = instant
