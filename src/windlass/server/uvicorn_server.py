"""The uvicorn server, with read timeouts, aborting of connections and graceful stream shutdown."""

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
from windlass.server.context import ServerContext
from windlass.server.streaming.sse import ABORT, SHRINK_BUFFERS
from windlass.server.streaming.stream_admission import StreamAdmission

BACKLOG = 2048
MAX_HEAD = 64 * 1024  # bytes of a request's path and headers
_HEAD_TOO_LONG = "The head of the request is too long."
SEND_BUFFER = 32 * 1024  # bytes; by default Linux buffers megabytes for a client that does not read
WRITE_BUFFER = 16 * 1024  # bytes that wait for space in the send buffer before writers pause


class UvicornServer(uvicorn.Server):
    """Serves an ASGI application of `app.asgi()`.

    Waits for: requests, until a signal or `should_exit`. Then it accepts no more connections, ends
    event streams between two messages, and lets requests finish for up to `grace` seconds.
    After a crash, clients retry: every request may be repeated.
    """

    def __init__(
        self,
        api: FastAPI,
        host: str,
        port: int,
        *,
        grace: float = 10.0,
        on_started: Callable[[str], None] = lambda _: None,
        handle_signals: bool = True,
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
        # At TRACE level, uvicorn logs whole requests, with the tickets in their URLs.
        logging.getLogger("uvicorn.asgi").setLevel(logging.INFO)
        self._context: ServerContext = api.state.server_context
        self._context.hub.watch_signals = False
        timeout = self._context.config.read_timeout
        admission = StreamAdmission(self._context.hub)
        config.http_protocol_class = _guarded(config.http_protocol_class, timeout, admission)
        super().__init__(config)
        self._on_started = on_started
        self._handle_signals = handle_signals

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Handle signals, unless the surrounding program does."""
        with super().capture_signals() if self._handle_signals else contextlib.nullcontext():
            yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        try:
            await super().startup(sockets)
        except SystemExit:  # uvicorn has logged the cause
            raise ConfigurationError(
                f"cannot listen on {self.config.host} port {self.config.port}; "
                "the port may be in use: try another --port, or 0 for any free one"
            ) from None
        self._on_started(self.url)

    @property
    def url(self) -> str:
        """The URL of the server, with the actual port if it was started with port 0."""
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        """Shut down gracefully at the first signal, immediately at the second."""
        self.force_exit = self.should_exit
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._context.close()
        await super().shutdown(sockets)


def freeze_gc() -> None:
    """Exclude all objects of now from garbage collection, in a process that only serves.

    Otherwise each full collection scans them while every stream waits: 60 of 150 ms, with a
    thousand streams.
    """
    gc.collect()
    gc.freeze()


def _guarded(protocol: Any, read_timeout: float, admission: StreamAdmission) -> Any:
    """Return the protocol with a read timeout and extensions to control the connection.

    Waits for: the head of each request, for `read_timeout` seconds from its first byte (or from
    the start of the connection). Then the connection is aborted. It is also aborted when its
    client keeps sending an answered request. A head that is too long is rejected with any parser.
    """

    class GuardedProtocol(protocol):  # type: ignore[misc]
        _timer: asyncio.TimerHandle | None = None
        _head_size = 0  # bytes of an incomplete head

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self._timer = self.loop.call_later(read_timeout, transport.abort)
            self.app: ASGIApp = _with_extensions(self.app, transport, self._cancel_timer, admission)

        def data_received(self, data: bytes) -> None:
            if self._timer is None and self._idle:
                self._timer = self.loop.call_later(read_timeout, self.transport.abort)
            super().data_received(data)
            self._head_size = self._head_size + len(data) if self._idle else 0
            if self._head_size > MAX_HEAD and not self.transport.is_closing():
                self.send_400_response(_HEAD_TOO_LONG)

        def connection_lost(self, exc: Exception | None) -> None:
            self._cancel_timer()
            super().connection_lost(exc)

        @property
        def _idle(self) -> bool:
            """Whether no request is in progress."""
            return self.cycle is None or self.cycle.response_complete

        def _cancel_timer(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

    return GuardedProtocol


def _with_extensions(
    app: ASGIApp,
    transport: asyncio.Transport,
    on_head: Callable[[], None],
    admission: StreamAdmission,
) -> ASGIApp:
    def set_option(name: int, value: int | bytes) -> None:
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.SOL_SOCKET, name, value)

    def shrink_buffers() -> None:
        if transport.is_closing():
            return
        set_option(socket.SO_SNDBUF, SEND_BUFFER)
        transport.set_write_buffer_limits(WRITE_BUFFER)

    def abort() -> None:
        """Reset the connection: otherwise the kernel tries for minutes to send its buffer."""
        if transport.is_closing():
            return
        set_option(socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()

    async def wrapped(scope: Scope, receive: Receive, send: Send) -> None:
        on_head()
        if _head_size(scope) > MAX_HEAD:  # it was received in one piece
            await PlainTextResponse(_HEAD_TOO_LONG, 400)(scope, receive, send)
            return
        scope.setdefault("extensions", {}).update({ABORT: abort, SHRINK_BUFFERS: shrink_buffers})
        await admission(app, scope, receive, send, transport.is_closing)

    return wrapped


def _head_size(scope: Scope) -> int:
    """Return the approximate size of a request's head in bytes."""
    target = len(scope.get("raw_path") or b"") + len(scope.get("query_string") or b"")
    return sum((len(name) + len(value) for name, value in scope.get("headers", ())), target)
