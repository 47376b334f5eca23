"""HTTP/1.1 on bare sockets, for thousands of connections in one process. No Windlass code."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import cast
from urllib.parse import urlsplit

SSE = {"Accept": "text/event-stream"}
_BLANK = b"\r\n\r\n"
_LINE = b"\r\n"


def address(url: str) -> tuple[str, int]:
    parts = urlsplit(url)
    assert parts.hostname is not None
    assert parts.port is not None
    return parts.hostname, parts.port


def request(method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + body


class HttpConnection(asyncio.Protocol):
    """Parses responses: calls `head` at the start, `piece` for body data, `end` at the end.

    Subclasses implement these. `lost` is called once at the end of the connection; a body that has
    not ended by then is incomplete.
    """

    transport: asyncio.Transport
    _buffer = b""
    _left: int | None = None  # bytes of the body, or of its chunk; None: a head, or a size, is next
    _chunked = False
    _in_response = False  # inside a response

    def head(self, status: int, headers: Mapping[str, str]) -> None: ...
    def piece(self, data: bytes) -> None: ...
    def end(self) -> None: ...
    def lost(self) -> None: ...

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(
            "asyncio.Transport", transport
        )  # the transport of uvloop is no subclass

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the reason does not matter
        self.lost()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while self._buffer and self._step():
            pass

    def _step(self) -> bool:
        """Whether a part was parsed; else more data is needed."""
        if not self._in_response:
            return self._begin()
        if self._left is None:
            return self._size()
        taken, self._buffer = self._buffer[: self._left], self._buffer[self._left :]
        self._left -= len(taken)
        if taken:
            self.piece(taken)
        if self._left == 0:
            if not self._chunked:
                self._end_response()
            self._left = None
        return bool(taken)

    def _begin(self) -> bool:
        text, blank, rest = self._buffer.partition(_BLANK)
        if not blank:
            return False
        self._buffer = rest
        first, *lines = text.decode("latin-1").split("\r\n")
        pairs = (line.partition(":") for line in lines)
        headers = {name.lower(): value.strip() for name, _, value in pairs}
        status = int(first.split()[1])
        self._in_response = True
        self._chunked = headers.get("transfer-encoding") == "chunked"
        self._left = None if self._chunked else int(headers.get("content-length", 0))
        self.head(status, headers)
        if self._left == 0:
            self._end_response()
        return True

    def _size(self) -> bool:
        """Parse the size of the next chunk, after the end of the previous one."""
        start = 2 if self._buffer.startswith(_LINE) else 0
        text, line, rest = self._buffer[start:].partition(_LINE)
        if not line or (text == b"0" and not rest.startswith(_LINE)):
            return False
        self._buffer = rest
        self._left = int(text, 16)
        if self._left == 0:
            self._buffer = rest[2:]
            self._end_response()
        return True

    def _end_response(self) -> None:
        self._in_response, self._left = False, None
        self.end()
