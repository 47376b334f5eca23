"""Rate limit of requests, per caller."""

from __future__ import annotations

import time
from collections.abc import Callable

MAX_BUCKETS = 10_000  # beyond it, the least recently used bucket is dropped


class RateLimiter:
    """A token bucket per caller: `rate` tokens per second, at most `burst`, one per request."""

    def __init__(
        self, rate: float, burst: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate = rate
        self._burst = burst
        self._clock = clock
        self._buckets: dict[str, tuple[float, float]] = {}  # tokens, time of the last update

    def take(self, caller: str) -> float:
        """Take a token; return 0, or the seconds until the next one if there is none."""
        now = self._clock()
        tokens, updated = self._buckets.pop(caller, (self._burst, now))
        tokens = min(self._burst, tokens + (now - updated) * self._rate)
        allowed = tokens >= 1
        self._buckets[caller] = (tokens - 1 if allowed else tokens, now)
        if len(self._buckets) > MAX_BUCKETS:
            del self._buckets[next(iter(self._buckets))]
        return 0.0 if allowed else (1 - tokens) / self._rate
