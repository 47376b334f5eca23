"""Read the rest of a rejected request's body, so that the client receives the response.

Closing a connection while its client still sends resets it, and the response is lost:
nginx would answer 502 instead.
"""

from __future__ import annotations

import asyncio
import contextlib

from fastapi import Request
from starlette.types import Message, Receive

MAX_BYTES = 64 * 1024 * 1024  # bytes that are read and discarded
TIMEOUT = 2.0  # seconds


class BodyReceiver:
    """An ASGI `receive` that records whether the whole body was received."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._complete = False
        self._size = 0

    async def __call__(self) -> Message:
        message = await self._receive()
        self._size += len(message.get("body", b""))
        self._complete = not message.get("more_body", False)
        return message

    async def drain(self, request: Request) -> None:
        """Discard the rest of the body, within the limits of size and time."""
        length = request.headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit() or len(length) > len(str(MAX_BYTES)):
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TIMEOUT):
                while not self._complete and self._size < MAX_BYTES:
                    await self()
