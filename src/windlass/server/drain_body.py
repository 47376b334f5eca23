"""Refusals that arrive: who is told no in the middle of a request is heard out, for a moment.

A connection that is closed while its client still sends is reset, and the answer is lost with it:
nginx would say 502 instead.
"""

from __future__ import annotations

import asyncio
import contextlib

from fastapi import Request
from starlette.types import Message, Receive

MOST = 64 * 1024 * 1024  # bytes that are listened to and thrown away
SECONDS = 2.0


class Heard:
    """What receives a request, and knows whether it has come to its end."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._ended = False
        self._size = 0

    async def __call__(self) -> Message:
        said = await self._receive()
        self._size += len(said.get("body", b""))
        self._ended = not said.get("more_body", False)
        return said

    async def out(self, request: Request) -> None:
        """Listen to the rest of it, unless that is very much, or does not come."""
        length = request.headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit() or len(length) > len(str(MOST)):
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(SECONDS):
                while not self._ended and self._size < MOST:
                    await self()
