"""A server that listens: uvicorn, with connections to be cut and streams that end in order."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import socket
import struct
from collections.abc import Callable, Generator
from types import FrameType
from typing import Any

import uvicorn
from fastapi import FastAPI
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from windlass.core.errors import ConfigurationError
from windlass.server.context import Site
from windlass.server.streaming.open_limit import Opening
from windlass.server.streaming.sse import ABORT, NARROW

BACKLOG = 2048
MAX_HEAD = 64 * 1024  # bytes of a request's address and headers
HELD = 32 * 1024  # bytes; Linux would hold megabytes for a reader who takes nothing
WAITING = 16 * 1024  # bytes that may wait for a place there before the next is made


class Server(uvicorn.Server):
    """Serves one ASGI application of ours.

    Waits for: requests, until it is told to stop (a signal, or `should_exit`). Then it takes no
    more connections, ends the streams between two messages, and lets requests finish, for `grace`
    seconds. A crash leaves clients to ask again: every request may be repeated.
    """

    def __init__(
        self,
        api: FastAPI,
        host: str,
        port: int,
        *,
        grace: float = 10.0,
        started: Callable[[str], None] = lambda _: None,
        signals: bool = True,
    ) -> None:
        config = uvicorn.Config(
            api,
            host=host,
            port=port,
            backlog=BACKLOG,
            h11_max_incomplete_event_size=MAX_HEAD,
            ws="none",
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=max(1, round(grace)),
        )
        config.load()
        # Told to log all, it would write down whole requests, tickets in addresses among them.
        logging.getLogger("uvicorn.asgi").setLevel(logging.INFO)
        self._site: Site = api.state.site
        self._site.hub.guest = False
        patience = self._site.config.patience
        opening = Opening(self._site.hub)
        config.http_protocol_class = _guarded(config.http_protocol_class, patience, opening)
        super().__init__(config)
        self._tell = started
        self._signals = signals

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Beside something else, which sees to signals, it leaves them alone."""
        with super().capture_signals() if self._signals else contextlib.nullcontext():
            yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        except SystemExit:  # it has logged why
            raise ConfigurationError(
                f"{self.config.host} port {self.config.port} cannot be listened on; "
                "something else may do that already: try another --port, or 0 for any"
            ) from None
        self._tell(self.url)

    @property
    def url(self) -> str:
        """Where it listens; the port is the one it got, if it asked for any."""
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """The first signal stops it in order, the second at once; it ends by itself."""
        self.force_exit = self.should_exit
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._site.close()
        await super().shutdown(sockets)


def settle_in() -> None:
    """For a process that only serves: what it has imported by now, it keeps.

    Else every full collection would look through it, and every stream would wait: 60 ms of 150,
    with a thousand streams.
    """
    gc.collect()
    gc.freeze()


def _guarded(protocol: Any, patience: float, opening: Opening) -> Any:
    """The protocol, with ways for an application to narrow its connection, and to cut it off.

    Waits for: the head of each request, `patience` seconds from its first byte (or from the
    connection's beginning). One that has not come by then is not waited for: the connection is cut.
    So is one whose client goes on sending what was answered already. One that is too long is
    refused, whichever parser reads it.
    """

    class Guarded(protocol):  # type: ignore[misc]
        _timer: asyncio.TimerHandle | None = None
        _head = 0  # bytes of one that has begun

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self._timer = self.loop.call_later(patience, transport.abort)
            self.app: ASGIApp = _with(self.app, transport, self._come, opening)

        def data_received(self, data: bytes) -> None:
            if self._timer is None and self._between:
                self._timer = self.loop.call_later(patience, self.transport.abort)
            super().data_received(data)
            self._head = self._head + len(data) if self._between else 0
            if self._head > MAX_HEAD and not self.transport.is_closing():
                self.send_400_response("The head of the request is too long.")

        def connection_lost(self, exc: Exception | None) -> None:
            self._come()
            super().connection_lost(exc)

        @property
        def _between(self) -> bool:
            """Whether no request is under way."""
            return self.cycle is None or self.cycle.response_complete

        def _come(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    return Guarded


def _with(
    app: ASGIApp, transport: asyncio.Transport, come: Callable[[], None], opening: Opening
) -> ASGIApp:
    def option(name: int, value: int | bytes) -> None:
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, name, value)

    def narrow() -> None:
        if transport.is_closing():  # whoever asked has left
            return
        option(socket.SO_SNDBUF, HELD)
        transport.set_write_buffer_limits(WAITING)

    def abort() -> None:
        """At once, for both sides: else the system would try for minutes to send what it holds."""
        if transport.is_closing():
            return
        option(socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        come()
        if _length(scope) > MAX_HEAD:  # it came in one piece
            await PlainTextResponse("The head of the request is too long.", 400)(
                scope, receive, send
            )
            return
        scope.setdefault("extensions", {}).update({ABORT: abort, NARROW: narrow})
        await opening(app, scope, receive, send, transport.is_closing)

    return wrapped


def _length(scope: Scope) -> int:
    """Bytes of the head of a request, about."""
    address = len(scope.get("raw_path") or b"") + len(scope.get("query_string") or b"")
    return sum((len(name) + len(value) for name, value in scope.get("headers", ())), address)
