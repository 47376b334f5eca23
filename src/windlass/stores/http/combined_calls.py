"""Small calls that are made at once, sent as one: a request costs more than what it carries.

A call that finds none of its kind under way is sent at once; those that come meanwhile go together
when it is back, in the order in which they came. One that is refused takes no other along: then
each is sent by itself. When the server is away, none of them knows what became of it, as always.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from windlass.stores.coalescing import Gatherer

SMALL = 100  # items; a larger call is worth a request of its own, beside others
Send: TypeAlias = Callable[[Sequence[Any]], Awaitable[list[Any]]]


class Together:
    """Belongs to the event loop, and the process, of its calls: in another it begins anew."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._home: tuple[int, asyncio.AbstractEventLoop] | None = None
        self._gatherer = Gatherer[Any, Any](send)

    async def __call__(self, items: Sequence[Any]) -> list[Any]:
        if len(items) > SMALL:
            return await self._send(items)
        home = os.getpid(), asyncio.get_running_loop()
        if self._home != home:
            self._home, self._gatherer = home, Gatherer[Any, Any](self._send)
        return await self._gatherer(items)

    async def finish(self) -> None:
        """Wait for all that was called here."""
        if self._home == (os.getpid(), asyncio.get_running_loop()):
            await self._gatherer.finish()
