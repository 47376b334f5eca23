"""Messages over a socket pair: four bytes of length, then JSON. Never pickle."""

from __future__ import annotations

import asyncio
import json
from socket import socket
from threading import Lock
from typing import Any, TypeAlias

Message: TypeAlias = dict[str, Any]
MAX_FRAME = 64 * 1024 * 1024  # far above any valid message; a broken sender must not fill memory
_HEADER_SIZE = 4
_CHUNK = 64 * 1024


def frame(message: Message) -> bytes:
    body = json.dumps(message, separators=(",", ":")).encode()
    if len(body) > MAX_FRAME:
        raise ValueError(
            f"a message of {len(body):,} bytes exceeds the limit of {MAX_FRAME:,} between a "
            "process and its child; write the data to a file and pass its path"
        )
    return len(body).to_bytes(_HEADER_SIZE, "big") + body


class MessageChannel:
    """`send` is thread-safe and never blocks; `receive` runs on the event loop.

    `send` passes as much as possible to the kernel before it returns, so that a message survives
    the death of the process. The rest is buffered until the peer reads.
    """

    def __init__(self, connection: socket, loop: asyncio.AbstractEventLoop) -> None:
        connection.setblocking(False)
        self._connection = connection
        self._loop = loop
        self._lock = Lock()
        self._unsent = bytearray()
        self._received = bytearray()
        self._closed = False

    def send(self, message: Message) -> None:
        """Send a message. After the peer closed the connection, only `receive` raises EOFError."""
        data = memoryview(frame(message))
        with self._lock:
            if self._closed:
                return
            waiting = bool(self._unsent)
            if not waiting:
                data = data[self._send_now(data) :]
            self._unsent += data
            if waiting or not data:
                return
        self._loop.call_soon_threadsafe(self._start_writer)

    def _send_now(self, data: memoryview | bytearray) -> int:
        try:
            return self._connection.send(data)
        except BlockingIOError:
            return 0
        except OSError:
            return len(data)

    def _start_writer(self) -> None:
        if not self._closed:
            self._loop.add_writer(self._connection, self._drain)

    def _drain(self) -> None:
        with self._lock:
            del self._unsent[: self._send_now(self._unsent)]
            if not self._unsent:
                self._loop.remove_writer(self._connection)

    async def receive(self) -> Message:
        """Return the next message. Raise EOFError if the peer closed it or sent invalid data."""
        header = await self._read_exactly(_HEADER_SIZE)
        size = int.from_bytes(header, "big")
        if size > MAX_FRAME:
            raise EOFError("the peer sent an invalid message")
        try:
            message: Message = {**json.loads(await self._read_exactly(size))}
        except (ValueError, TypeError):
            raise EOFError("the peer sent an invalid message") from None
        return message

    async def _read_exactly(self, size: int) -> bytes:
        while len(self._received) < size:
            try:
                chunk = await self._loop.sock_recv(self._connection, _CHUNK)
            except OSError:
                chunk = b""
            if not chunk:
                raise EOFError("the peer closed the connection")
            self._received += chunk
            await asyncio.sleep(0)  # a constant stream of messages must not starve the loop
        data = bytes(self._received[:size])
        del self._received[:size]
        return data

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._unsent.clear()
        self._loop.remove_writer(self._connection)
        self._connection.close()
