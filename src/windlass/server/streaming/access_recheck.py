"""Whether those who read streams may still read them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterator

from windlass.core.errors import StoreError
from windlass.server.auth.authenticator import Caller

logger = logging.getLogger("windlass.server")
CHECK = 1.0  # seconds between two looks at a key


class Welcome:
    """Looks once for all streams of a caller: of a thousand that wait, none has to be woken.

    Waits for: a second, again and again. Guarantees: a stream whose caller the door would let in no
    more is told to end. Stops: with the last stream. A crash leaves nothing.
    """

    def __init__(self, still: Callable[[Caller], Awaitable[bool]]) -> None:
        self._still = still
        self._streams: dict[Caller, set[asyncio.Event]] = {}
        self._looking: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def reading(self, caller: Caller, ending: asyncio.Event) -> Iterator[None]:
        """In the block the caller has a stream; the event says that it is to end."""
        streams = self._streams.setdefault(caller, set())
        streams.add(ending)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look())
        try:
            yield
        finally:
            streams.discard(ending)
            if not streams:
                self._streams.pop(caller, None)

    async def _look(self) -> None:
        while self._streams:
            await asyncio.sleep(CHECK)
            await asyncio.gather(*(self._ask(caller) for caller in list(self._streams)))

    async def _ask(self, caller: Caller) -> None:
        if not await self._may(caller):
            for ending in self._streams.get(caller, ()):
                ending.set()

    async def _may(self, caller: Caller) -> bool:
        try:
            return await self._still(caller)
        except StoreError:
            return True  # nobody can say now; the feeds meet the same trouble
        except Exception:
            logger.exception("whether %s may still read cannot be told", caller.name)
            return True  # a fault here must not end the looking, by which others are let go

    def close(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
