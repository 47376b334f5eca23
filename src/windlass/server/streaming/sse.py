"""Server-sent events: the response that sends an event stream.

Waits for: the next chunk of its feed. Guarantees: a keepalive comment every `keepalive` seconds.
The stream ends with its feed, when the caller loses access, or when the server shuts down, always
between two messages. The connection of a client that does not read is aborted after
`write_timeout`. After a crash, the client reconnects with its cursor.
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
from windlass.server.auth.caller import Caller
from windlass.server.context import ServerContext
from windlass.server.problem_details import problem
from windlass.server.streaming.event_encoder import sse_message, to_json

log = logging.getLogger("windlass.server")
MEDIA_TYPE = "text/event-stream"
# ASGI extensions of our server.
ABORT = "windlass.abort"  # resets the connection and discards unsent data
SHRINK_BUFFERS = "windlass.shrink_buffers"  # limits the data buffered for a client
ABORT_TIMEOUT = 1.0  # seconds to wait for the disconnect after an abort
RETRY = b"retry: 1000\n\n"  # milliseconds until a browser reconnects


class EventStream(Response):
    """A stream of `feed`, which is closed with it. Raises ApiError when the quota is used up."""

    media_type = MEDIA_TYPE

    def __init__(
        self,
        server: ServerContext,
        caller: Caller,
        feed: AsyncGenerator[bytes, None],
        correlation_id: str | None,
    ) -> None:
        server.hub.quota.check(caller.key_id)
        super().__init__()
        del self.headers["content-length"]
        self.headers["X-Accel-Buffering"] = "no"
        self.headers["Cache-Control"] = "no-store, no-transform"  # also forbids compression
        self._server = server
        self._caller = caller
        self._feed = feed
        self._correlation_id = correlation_id
        self._sending = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        shrink_buffers = (scope.get("extensions") or {}).get(SHRINK_BUFFERS)
        if shrink_buffers is not None:
            shrink_buffers()
        server, caller = self._server, self._caller
        with (
            server.hub.stream(caller.key_id) as stop_event,
            server.access_recheck.track(caller, stop_event),
        ):
            disconnected = asyncio.create_task(_wait_for_disconnect(receive))
            stopping = asyncio.create_task(stop_event.wait())
            try:
                await send(start)
                if await self._pump(send, disconnected, stopping):
                    await self._send(send, b"", more=False)
            except TimeoutError:
                await _abort(scope, disconnected)
            except OSError:  # the client is gone
                pass
            finally:
                disconnected.cancel()
                stopping.cancel()
                await self._feed.aclose()

    async def _pump(
        self, send: Send, disconnected: asyncio.Task[None], stopping: asyncio.Task[Any]
    ) -> bool:
        """Send the feed and keepalives; return whether the client is still connected."""
        stop_tasks = {disconnected, stopping}
        clock = asyncio.get_running_loop().time
        next_keepalive = clock() + self._server.config.keepalive
        await self._send(send, RETRY)
        sender = asyncio.create_task(self._send_feed(send))
        try:
            while True:
                wait = max(0.0, next_keepalive - clock())
                done, _ = await asyncio.wait(
                    {sender, *stop_tasks}, timeout=wait, return_when=asyncio.FIRST_COMPLETED
                )
                if done & stop_tasks:
                    return not disconnected.done()
                if sender in done:
                    sender.result()  # raises if it failed
                    return True
                if clock() >= next_keepalive:
                    next_keepalive += self._server.config.keepalive
                    if not self._sending:  # otherwise a send already waits for the client
                        await self._send(send, _keepalive())
        finally:
            sender.cancel()
            await asyncio.gather(sender, return_exceptions=True)

    async def _send_feed(self, send: Send) -> None:
        """Send the feed in one task: a task for each chunk would cost more."""
        while (chunk := await self._next()) is not None:
            await self._send(send, chunk)

    async def _next(self) -> bytes | None:
        try:
            return await anext(self._feed, None)
        except StoreError as error:
            return self._error_message(error)

    def _error_message(self, error: BaseException) -> bytes:
        log.warning("event stream ended by a store error: %s", error)
        found = problem(error)
        data = {
            "message": found.detail,
            "code": found.code,
            "correlationId": self._correlation_id,
        }
        return sse_message("error", to_json(data))

    async def _send(self, send: Send, body: bytes, *, more: bool = True) -> None:
        self._sending = True
        async with asyncio.timeout(self._server.config.write_timeout):
            await send({"type": "http.response.body", "body": body, "more_body": more})
        self._sending = False


async def _wait_for_disconnect(receive: Receive) -> None:
    message: Message = {}
    while message.get("type") != "http.disconnect":
        message = await receive()


async def _abort(scope: Scope, disconnected: asyncio.Task[None]) -> None:
    """Abort the connection of a client that does not read, and discard unsent data."""
    abort = (scope.get("extensions") or {}).get(ABORT)
    if abort is not None:
        abort()
        await asyncio.wait({disconnected}, timeout=ABORT_TIMEOUT)


def _keepalive() -> bytes:
    now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return f": keepalive: {now}\n\n".encode()
