"""Periodic check that clients of open streams still have access."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator

from windlass.core.errors import StoreError
from windlass.server.auth.caller import Caller

logger = logging.getLogger("windlass.server")
INTERVAL = 1.0  # seconds between two checks of a caller


class AccessRecheck:
    """Checks each caller once for all its streams, instead of a timer in each stream.

    Waits for: a second, repeatedly. Guarantees: a stream ends when its caller loses access.
    Stops: with the last stream. A crash leaves nothing behind.
    """

    def __init__(self, still_authorized: Callable[[Caller], Awaitable[bool]]) -> None:
        self._still_authorized = still_authorized
        self._streams: dict[Caller, set[asyncio.Event]] = {}
        self._task: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def track(self, caller: Caller, stop_event: asyncio.Event) -> Iterator[None]:
        """Check the caller during the block; set `stop_event` when it loses access."""
        streams = self._streams.setdefault(caller, set())
        streams.add(stop_event)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            streams.discard(stop_event)
            if not streams:
                self._streams.pop(caller, None)

    async def _run(self) -> None:
        while self._streams:
            await asyncio.sleep(INTERVAL)
            await asyncio.gather(*(self._check(caller) for caller in list(self._streams)))

    async def _check(self, caller: Caller) -> None:
        if not await self._has_access(caller):
            for stop_event in self._streams.get(caller, ()):
                stop_event.set()

    async def _has_access(self, caller: Caller) -> bool:
        try:
            return await self._still_authorized(caller)
        except StoreError:
            return True  # unknown for now; the feeds report the same store error
        except Exception:
            logger.exception("cannot check whether %s still has access", caller.name)
            return True  # an error here must not end the check of other callers

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
