"""Stores what running tasks say: progress, logs, warnings.

Waits for: attempts, and while there are any, for its tick. Guarantees: at most one write per
attempt in `FLUSH`, all that are due together in one transaction; the first word of an attempt is
out after a tick. What the store cannot take now is kept and goes later, at the latest with the
settle. Stops: when cancelled. A crash loses what was said since the last write, and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from windlass.core.errors import RequestError, StaleLeaseError, StoreError
from windlass.worker.attempt import Attempt
from windlass.worker.context import Context
from windlass.worker.loops.outage_log import Trouble

log = logging.getLogger("windlass.worker")
TICK = 0.1
FLUSH = 0.5


class Speaker:
    """`attempts` are those under way; `on_lost` is told of one whose lease is gone.

    `busy` is set while there are any.
    """

    def __init__(
        self,
        attempts: Callable[[], Iterable[Attempt]],
        on_lost: Callable[[Attempt], None],
        busy: asyncio.Event,
    ) -> None:
        self._busy = busy
        self._attempts = attempts
        self._on_lost = on_lost
        self._trouble = Trouble("storing what jobs say")

    async def run(self) -> None:
        clock = asyncio.get_running_loop().time
        while True:
            await self._busy.wait()
            await asyncio.sleep(TICK)
            before = clock() - FLUSH
            due = [
                self._flush(attempt, context)
                for attempt in self._attempts()
                if (context := attempt.context) is not None
                and context.has_said
                and context.flushed_at <= before
            ]
            if due:
                await asyncio.gather(*due)

    async def _flush(self, attempt: Attempt, context: Context) -> None:
        try:
            await context.flush()
        except StaleLeaseError:
            self._on_lost(attempt)
        except StoreError as error:
            self._trouble.met(error)
        except RequestError as error:
            log.warning("could not store what job %s says: %s", attempt.job.id, error)
        else:
            self._trouble.over()
