"""Streams that are being opened, a few at a time.

A thousand readers may come in one moment: after a restart, all of them do. To let one in (its key,
its job, the first words of the answer) takes a few milliseconds, and all that others are to be told
would come after the last of the thousand. So they come in one behind the other, and everything else
has its turn between two.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from windlass.server.streaming.hub import Hub
from windlass.server.streaming.sse import MEDIA_TYPE, RETRY

AT_ONCE = 8
_ACCEPT, _STREAM = b"accept", MEDIA_TYPE.encode()


class Opening:
    """Before an application: a request for a stream waits here until those before it are answered.

    Only one without a body: nobody can hold up the others by sending it slowly. An answer begins
    when the store has spoken or failed, so the place is free again, whatever becomes of the stream.
    Who has left meanwhile is not let in. When the server stops, who waits is sent away at once.
    """

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._places = asyncio.Semaphore(AT_ONCE)
        self._waiting = 0
        hub.at_close.append(self._wake_all)

    async def __call__(
        self, app: ASGIApp, scope: Scope, receive: Receive, send: Send, gone: Callable[[], bool]
    ) -> None:
        if not _opens(scope):
            await app(scope, receive, send)
            return
        self._waiting += 1
        try:
            await self._places.acquire()
        finally:
            self._waiting -= 1
        inside = True

        def leave() -> None:
            nonlocal inside
            if inside:
                inside = False
                self._places.release()

        async def begin(message: Message) -> None:
            leave()
            await send(message)

        try:
            if self._hub.closed:
                await _come_again(send)
            elif not gone():
                await app(scope, receive, begin)
        finally:
            leave()

    def _wake_all(self) -> None:
        for _ in range(self._waiting):
            self._places.release()


async def _come_again(send: Send) -> None:
    """A stream without events: a browser goes on elsewhere, while a refusal would be its end."""
    headers = [(b"content-type", _STREAM), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": RETRY})


def _opens(scope: Scope) -> bool:
    return (
        scope["type"] == "http"
        and scope["method"] == "GET"
        and scope["path"].endswith("/events")
        and any(name == _ACCEPT and _STREAM in value for name, value in scope["headers"])
    )
