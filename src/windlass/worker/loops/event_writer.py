"""Stores events of running tasks: progress, logs, warnings.

Waits for: attempts, and while there are any, for its tick. Guarantees: at most one write per
attempt in `FLUSH_INTERVAL`; all due attempts share one transaction. The first event of an attempt
is stored after one tick. Events that cannot be stored now stay buffered, and are stored at the
latest with the settle. Stops: when cancelled. A crash loses only the events since the last write.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from windlass.core.errors import RequestError, StaleLeaseError, StoreError
from windlass.worker.context import Context
from windlass.worker.loops.outage_log import OutageLog
from windlass.worker.running_attempts import RunningAttempt

log = logging.getLogger("windlass.worker")
TICK = 0.1
FLUSH_INTERVAL = 0.5


class EventWriter:
    """`attempts` returns the running attempts; `busy` is set while there are any.

    `on_lost` is called for an attempt whose lease is lost.
    """

    def __init__(
        self,
        attempts: Callable[[], Iterable[RunningAttempt]],
        on_lost: Callable[[RunningAttempt], None],
        busy: asyncio.Event,
    ) -> None:
        self._busy = busy
        self._attempts = attempts
        self._on_lost = on_lost
        self._outages = OutageLog("Storing job events")

    async def run(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            await self._busy.wait()
            await asyncio.sleep(TICK)
            flush_before = clock() - FLUSH_INTERVAL
            due = [
                self._flush(attempt, context)
                for attempt in self._attempts()
                if (context := attempt.context) is not None
                and context.has_pending
                and context.flushed_at <= flush_before
            ]
            if due:
                await asyncio.gather(*due)

    async def _flush(self, attempt: RunningAttempt, context: Context) -> None:
        try:
            await context.flush()
        except StaleLeaseError:
            self._on_lost(attempt)
        except StoreError as error:
            self._outages.failed(error)
        except RequestError as error:
            log.warning("could not store events of job %s: %s", attempt.job.id, error)
        else:
            self._outages.succeeded()
