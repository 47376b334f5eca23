"""Admission of event streams: a limit of streams that are being opened concurrently.

After a restart, a thousand clients reconnect simultaneously. Opening one stream (key, job, first
bytes) takes a few milliseconds, and without a limit all other events would wait for the last of
them. So streams are opened a few at a time, and other work runs in between.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from windlass.server.streaming.event_hub import EventHub
from windlass.server.streaming.sse import MEDIA_TYPE, RETRY

MAX_OPENING = 8
_ACCEPT, _STREAM = b"accept", MEDIA_TYPE.encode()


class StreamAdmission:
    """Wraps the application: a request for a stream waits here for a free slot.

    Only requests without a body wait, so a slow upload cannot hold a slot. A response starts when
    the store has answered or failed; then the slot is free. A client that disconnected meanwhile is
    dropped. On shutdown, all waiting requests are answered immediately.
    """

    def __init__(self, hub: EventHub) -> None:
        self._hub = hub
        self._slots = asyncio.Semaphore(MAX_OPENING)
        self._waiting = 0
        hub.close_callbacks.append(self._wake_all)

    async def __call__(
        self,
        app: ASGIApp,
        scope: Scope,
        receive: Receive,
        send: Send,
        disconnected: Callable[[], bool],
    ) -> None:
        if not _opens_stream(scope):
            await app(scope, receive, send)
            return
        self._waiting += 1
        try:
            await self._slots.acquire()
        finally:
            self._waiting -= 1
        held = True

        def release() -> None:
            nonlocal held
            if held:
                held = False
                self._slots.release()

        async def send_and_release(message: Message) -> None:
            release()
            await send(message)

        try:
            if self._hub.closed:
                await _send_empty_stream(send)
            elif not disconnected():
                await app(scope, receive, send_and_release)
        finally:
            release()

    def _wake_all(self) -> None:
        for _ in range(self._waiting):
            self._slots.release()


async def _send_empty_stream(send: Send) -> None:
    """Send a stream without events: browsers reconnect after it, but not after an error status."""
    headers = [(b"content-type", _STREAM), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": RETRY})


def _opens_stream(scope: Scope) -> bool:
    return (
        scope["type"] == "http"
        and scope["method"] == "GET"
        and scope["path"].endswith("/events")
        and any(name == _ACCEPT and _STREAM in value for name, value in scope["headers"])
    )
