"""Rate-limited log of store failures in a loop: each error once, then the recovery."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

log = logging.getLogger("windlass.worker")
REPEAT_INTERVAL = 60.0  # seconds after which the same error is logged again
RECOVERY_TIME = 5.0  # seconds without an error after which the outage is over
MAX_MESSAGES = 10  # different texts per interval: a text with numbers differs each time


class OutageLog:
    """Outage log of one loop; `operation` names its work, as in "Claiming jobs".

    While failures and successes alternate, the outage lasts: the recovery is logged only after
    `RECOVERY_TIME` without a failure.
    """

    def __init__(self, operation: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._operation = operation
        self._clock = clock
        self.started_at: float | None = None  # None: the last calls have succeeded
        self._last_failure = 0.0
        self._recovered_at: float | None = None  # first success after the last failure
        self._logged: dict[str, float] = {}

    def failed(self, error: Exception, operation: str = "") -> None:
        """Log a failure that the caller retries; `operation` overrides the general name."""
        now, message = self._clock(), str(error)
        if now - self._last_failure >= RECOVERY_TIME:
            self.log_recovery()  # it worked since, but no later call reported it
        if self.started_at is None:
            self.started_at = now
        self._last_failure, self._recovered_at = now, None
        self._logged = {text: at for text, at in self._logged.items() if now - at < REPEAT_INTERVAL}
        if message not in self._logged and len(self._logged) < MAX_MESSAGES:
            self._logged[message] = now
            log.warning("%s failed; retrying: %s", operation or self._operation, message)

    def succeeded(self) -> None:
        """Record a success."""
        if self.started_at is None:
            return
        now = self._clock()
        if self._recovered_at is None:
            self._recovered_at = now
        if now - self._last_failure >= RECOVERY_TIME:
            self.log_recovery()

    def log_recovery(self) -> None:
        """Log the end of an outage, if a call has succeeded since its last failure."""
        if self.started_at is not None and self._recovered_at is not None:
            log.warning(
                "%s recovered after %.1f s", self._operation, self._recovered_at - self.started_at
            )
            self.started_at = self._recovered_at = None
            self._logged.clear()
