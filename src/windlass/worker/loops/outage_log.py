"""What a loop says of a store that fails it: each thing once, not once for every try."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

log = logging.getLogger("windlass.worker")
AGAIN = 60.0  # seconds after which trouble that lasts is told again
QUIET = 5.0  # seconds without trouble after which it is believed to be over
MANY = 10  # different things said in `AGAIN`: a text with numbers in it differs each time


class Trouble:
    """One loop's: `what` fails, as in "claiming". It goes on trying, and says when that helped.

    Where failures and successes take turns, it is not over: that is told once it has been quiet.
    """

    def __init__(self, what: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._clock = clock
        self._began: float | None = None
        self._met = 0.0  # when it last failed
        self._worked: float | None = None  # when it first worked after that
        self._said: dict[str, float] = {}

    def met(self, error: Exception, doing: str = "") -> None:
        """It failed, and will be tried again; `doing` says it more precisely."""
        now, why = self._clock(), str(error)
        if now - self._met >= QUIET:
            self.done()  # if it worked since, nothing was tried that could say so
        if self._began is None:
            self._began = now
        self._met, self._worked = now, None
        self._said = {text: at for text, at in self._said.items() if now - at < AGAIN}
        if why not in self._said and len(self._said) < MANY:
            self._said[why] = now
            log.warning("%s failed, trying again: %s", doing or self._what, why)

    def over(self) -> None:
        """It worked."""
        if self._began is None:
            return
        now = self._clock()
        if self._worked is None:
            self._worked = now
        if now - self._met >= QUIET:
            self.done()

    def done(self) -> None:
        """Nothing more is tried: if it worked last, it is over without any quiet."""
        if self._began is not None and self._worked is not None:
            log.warning("%s works again, after %.1f s", self._what, self._worked - self._began)
            self._began = self._worked = None
            self._said.clear()
