"""The body of a request: its limits, and the drain of the rest after a rejection.

Closing a connection while its client still sends resets it, and the response is lost:
nginx would answer 502 instead. So the rest of a rejected body is read and discarded.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator
from typing import Any

from fastapi import Request
from starlette.types import Message, Receive

from windlass.server.config import ServerConfig
from windlass.server.problem_details import ApiError

MAX_BYTES = 64 * 1024 * 1024  # bytes that are read and discarded
TIMEOUT = 2.0  # seconds


class LimitedRequest(Request):
    """A request with limits on the size, the duration and the JSON depth of its body."""

    def __init__(self, request: Request, max_body: int, config: ServerConfig) -> None:
        super().__init__(request.scope, request.receive)
        self._max_body = max_body
        self._max_depth = config.max_json_depth
        self._timeout = config.read_timeout

    async def stream(self) -> AsyncGenerator[bytes, None]:
        size = 0
        length = self.headers.get("content-length", "")
        if length.isascii() and length.isdigit() and len(length) < 20:  # noqa: PLR2004 - digits
            self._check_size(int(length))
        async for chunk in super().stream():
            size += len(chunk)
            self._check_size(size)
            yield chunk

    def _check_size(self, size: int) -> None:
        if size > self._max_body:
            raise ApiError("too_large", f"the body exceeds the limit of {self._max_body:,} bytes")

    async def body(self) -> bytes:
        try:
            async with asyncio.timeout(self._timeout):
                return await super().body()
        except TimeoutError:
            detail = f"the body was not received within {self._timeout:g} s"
            raise ApiError("request_timeout", detail, {"Connection": "close"}) from None

    async def json(self) -> Any:
        body = await self.body()
        try:
            value = json.loads(body, parse_constant=_reject_constant)
        except RecursionError:
            raise self._too_deep() from None
        except UnicodeDecodeError:
            raise ApiError("bad_request", "the body is not UTF-8") from None
        if _deeper_than(value, self._max_depth):
            raise self._too_deep()
        return value

    def _too_deep(self) -> ApiError:
        return ApiError("bad_request", f"the JSON is nested deeper than {self._max_depth} levels")


def _reject_constant(name: str) -> Any:
    raise ApiError("bad_request", f"{name} is not valid JSON; omit it, or send null")


def _deeper_than(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return False
    return True


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
