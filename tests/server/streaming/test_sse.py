"""The response of an event stream, without a server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from tests.server.conftest import make_app

from windlass.server.auth.caller import ANONYMOUS_ADMIN
from windlass.server.config import AuthMode, ServerConfig
from windlass.server.streaming.sse import EventStream


async def test_no_keepalive_is_sent_while_a_send_is_blocked(tmp_path: Path) -> None:
    """Otherwise each blocked keepalive would restart the write timeout."""
    app = make_app(tmp_path)
    config = ServerConfig(auth=AuthMode.LOCAL, keepalive=0.01, write_timeout=0.5)
    context = app.asgi(config).state.server_context
    sent: list[Any] = []

    async def feed() -> AsyncGenerator[bytes, None]:
        yield b"data: too much\n\n"

    async def send(message: Any) -> None:
        sent.append(message)
        if message.get("body", b"").startswith(b"data"):
            await asyncio.Event().wait()

    async def receive() -> Any:
        return await asyncio.Event().wait()

    stream = EventStream(context, ANONYMOUS_ADMIN, feed(), None)
    await stream({"type": "http"}, receive, send)
    assert [item.get("body") for item in sent] == [None, b"retry: 1000\n\n", b"data: too much\n\n"]
    await app.aclose()
