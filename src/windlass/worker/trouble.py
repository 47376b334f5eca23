"""What a loop says of a store that fails it: each thing once, not once for every try."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

log = logging.getLogger("windlass.worker")
AGAIN = 60.0  # seconds after which trouble that lasts is told again


class Trouble:
    """One loop's: `what` fails, as in "claiming". It goes on trying, and says when that helped."""

    def __init__(self, what: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._clock = clock
        self._began: float | None = None
        self._said: dict[str, float] = {}

    def met(self, error: Exception, doing: str = "") -> None:
        """It failed, and will be tried again; `doing` says it more precisely."""
        now, why = self._clock(), str(error)
        if self._began is None:
            self._began = now
        if now - self._said.get(why, -AGAIN) >= AGAIN:
            self._said[why] = now
            log.warning("%s failed, trying again: %s", doing or self._what, why)

    def over(self) -> None:
        """It worked."""
        if self._began is not None:
            log.warning("%s works again, after %.1f s", self._what, self._clock() - self._began)
            self._began = None
            self._said.clear()
