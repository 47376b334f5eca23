"""Call coalescer: combines concurrent small calls of one store method into one request.

The first call is sent immediately. Calls that arrive meanwhile are sent together afterwards, in
order of arrival. If the combined request is refused, each call is sent separately. If the server is
unavailable, the outcome of all of them is unknown.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeAlias

from windlass.stores.coalescer import Coalescer

MAX_COALESCED = 100  # items; a larger call is sent as a separate request
Send: TypeAlias = Callable[[Sequence[Any]], Awaitable[list[Any]]]


class CallCoalescer:
    """Combines calls of one event loop in one process; starts over in another loop or process."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._context: tuple[int, asyncio.AbstractEventLoop] | None = None
        self._coalescer = Coalescer[Any, Any](send)

    async def __call__(self, items: Sequence[Any]) -> list[Any]:
        if len(items) > MAX_COALESCED:
            return await self._send(items)
        context = os.getpid(), asyncio.get_running_loop()
        if self._context != context:
            self._context, self._coalescer = context, Coalescer[Any, Any](self._send)
        return await self._coalescer(items)

    async def finish(self) -> None:
        """Wait for the calls made in this event loop."""
        if self._context == (os.getpid(), asyncio.get_running_loop()):
            await self._coalescer.finish()
