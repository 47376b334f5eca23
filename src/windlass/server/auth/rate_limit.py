"""How often a caller may ask: so many requests a second, with room for a burst."""

from __future__ import annotations

import time
from collections.abc import Callable

MANY = 10_000  # callers that are remembered; those who asked least recently are forgotten first


class Pace:
    """A bucket for each caller, filled by `rate` a second up to `burst`; each request takes one."""

    def __init__(
        self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._left: dict[str, tuple[float, float]] = {}  # how much there was, and when

    def take(self, caller: str) -> float:
        """0 if the caller may go on; else the seconds after which they may ask again."""
        now = self._clock()
        left, then = self._left.pop(caller, (self._burst, now))
        left = min(self._burst, left + (now - then) * self._rate)
        allowed = left >= 1
        self._left[caller] = (left - 1 if allowed else left, now)
        if len(self._left) > MANY:
            del self._left[next(iter(self._left))]
        return 0.0 if allowed else (1 - left) / self._rate
