"""Server-sent events: a response that lasts, and ends in order.

Waits for: the next piece of its feed. Guarantees: a comment every ten seconds; its end when the
feed ends, when the key is revoked, or when the server stops, always between two messages; its
connection cut when the reader takes nothing for too long. A crash leaves a reader with a cursor:
they go on elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from datetime import UTC, datetime
from typing import Any

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from windlass.core.errors import StoreError
from windlass.server.auth.authenticator import Caller
from windlass.server.context import Site
from windlass.server.problems import problem
from windlass.server.streaming.event_format import dumped, message

log = logging.getLogger("windlass.server")
MEDIA_TYPE = "text/event-stream"
ABORT = "windlass.abort"  # a server's extension: cuts the connection, whatever waits to be sent
NARROW = "windlass.narrow"  # another: lets the system hold little that a reader does not take
LAST = 1.0  # seconds for a cut to be noticed
RETRY = b"retry: 1000\n\n"  # milliseconds after which a browser asks again


class EventStream(Response):
    """`feed` is closed with it, however it ends. Where there is no room for it, it is refused."""

    media_type = MEDIA_TYPE

    def __init__(
        self, site: Site, caller: Caller, feed: AsyncGenerator[bytes, None], correlation: str | None
    ) -> None:
        site.hub.room.check(caller.key_id)
        super().__init__()
        del self.headers["content-length"]
        self.headers["X-Accel-Buffering"] = "no"
        self.headers["Cache-Control"] = "no-store, no-transform"  # which forbids compression, too
        self._site = site
        self._caller = caller
        self._feed = feed
        self._correlation = correlation
        self._sending = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        narrow = (scope.get("extensions") or {}).get(NARROW)
        if narrow is not None:
            narrow()
        site, caller = self._site, self._caller
        with site.hub.stream(caller.key_id) as ending, site.welcome.reading(caller, ending):
            gone = asyncio.create_task(_gone(receive))
            closing = asyncio.create_task(ending.wait())
            try:
                await send(start)
                if await self._pump(send, gone, closing):
                    await self._send(send, b"", more=False)
            except TimeoutError:
                await _cut(scope, gone)
            except OSError:  # the reader is gone
                pass
            finally:
                gone.cancel()
                closing.cancel()
                await self._feed.aclose()

    async def _pump(self, send: Send, gone: asyncio.Task[None], closing: asyncio.Task[Any]) -> bool:
        """Whether there is still somebody to be told that this is the end."""
        ends = {gone, closing}
        clock = asyncio.get_running_loop().time
        beat = clock() + self._site.config.keepalive
        await self._send(send, RETRY)
        telling = asyncio.create_task(self._tell(send))
        try:
            while True:
                wait = max(0.0, beat - clock())
                done, _ = await asyncio.wait(
                    {telling, *ends}, timeout=wait, return_when=asyncio.FIRST_COMPLETED
                )
                if done & ends:
                    return not gone.done()
                if telling in done:
                    telling.result()  # it may have failed
                    return True
                if clock() >= beat:
                    beat += self._site.config.keepalive
                    if not self._sending:  # else the reader is waited for already
                        await self._send(send, _keepalive())
        finally:
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)

    async def _tell(self, send: Send) -> None:
        """Whatever the feed brings. It is apart, for to begin a wait for every piece costs more."""
        while (piece := await self._next()) is not None:
            await self._send(send, piece)

    async def _next(self) -> bytes | None:
        try:
            return await anext(self._feed, None)
        except StoreError as error:
            return self._trouble(error)

    def _trouble(self, error: BaseException) -> bytes:
        log.warning("a stream ends: %s", error)
        told = problem(error)
        data = {"message": told.detail, "code": told.code, "correlationId": self._correlation}
        return message("error", dumped(data))

    async def _send(self, send: Send, body: bytes, *, more: bool = True) -> None:
        self._sending = True
        async with asyncio.timeout(self._site.config.stall):
            await send({"type": "http.response.body", "body": body, "more_body": more})
        self._sending = False


async def _gone(receive: Receive) -> None:
    """Return when the reader has left."""
    said: Message = {}
    while said.get("type") != "http.disconnect":
        said = await receive()


async def _cut(scope: Scope, gone: asyncio.Task[None]) -> None:
    """A reader that takes nothing is cut off, with what was to be sent to it."""
    abort = (scope.get("extensions") or {}).get(ABORT)
    if abort is not None:
        abort()
        await asyncio.wait({gone}, timeout=LAST)


def _keepalive() -> bytes:
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return f": keepalive: {now}\n\n".encode()
