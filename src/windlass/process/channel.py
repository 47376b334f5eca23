"""Messages over one end of a socket pair: four bytes of length, then JSON. Never pickle."""

from __future__ import annotations

import asyncio
import json
from socket import socket
from threading import Lock
from typing import Any, TypeAlias

Message: TypeAlias = dict[str, Any]
MAX_FRAME = 64 * 1024 * 1024  # far beyond any honest message; a broken sender must not fill memory
_HEAD = 4
_CHUNK = 64 * 1024


def frame(message: Message) -> bytes:
    body = json.dumps(message, separators=(",", ":")).encode()
    if len(body) > MAX_FRAME:
        raise ValueError(
            f"a message of {len(body):,} bytes is over the limit of {MAX_FRAME:,} between a "
            "process and its child; keep the data in a file and pass its path"
        )
    return len(body).to_bytes(_HEAD, "big") + body


class Channel:
    """`send` may be called from any thread and never blocks; `receive` belongs to the loop.

    What the kernel takes is with it when `send` returns, so that a process that dies right after
    has still said it. The rest waits here until the other side reads on.
    """

    def __init__(self, end: socket, loop: asyncio.AbstractEventLoop) -> None:
        end.setblocking(False)
        self._end = end
        self._loop = loop
        self._lock = Lock()
        self._unsent = bytearray()
        self._received = bytearray()
        self._closed = False

    def send(self, message: Message) -> None:
        """To a side that is gone, nothing is said and nothing is raised: `receive` tells."""
        data = memoryview(frame(message))
        with self._lock:
            if self._closed:
                return
            waiting = bool(self._unsent)
            if not waiting:
                data = data[self._pass_on(data) :]
            self._unsent += data
            if waiting or not data:
                return
        self._loop.call_soon_threadsafe(self._go_on)

    def _pass_on(self, data: memoryview | bytearray) -> int:
        try:
            return self._end.send(data)
        except BlockingIOError:
            return 0
        except OSError:
            return len(data)

    def _go_on(self) -> None:
        if not self._closed:
            self._loop.add_writer(self._end, self._drain)

    def _drain(self) -> None:
        with self._lock:
            del self._unsent[: self._pass_on(self._unsent)]
            if not self._unsent:
                self._loop.remove_writer(self._end)

    async def receive(self) -> Message:
        """The next message. Raises EOFError when the other side is gone, or talks nonsense."""
        head = await self._exactly(_HEAD)
        size = int.from_bytes(head, "big")
        if size > MAX_FRAME:
            raise EOFError("the other side sent what is no message")
        try:
            message: Message = {**json.loads(await self._exactly(size))}
        except (ValueError, TypeError):
            raise EOFError("the other side sent what is no message") from None
        return message

    async def _exactly(self, size: int) -> bytes:
        while len(self._received) < size:
            try:
                chunk = await self._loop.sock_recv(self._end, _CHUNK)
            except OSError:
                chunk = b""
            if not chunk:
                raise EOFError("the other side is gone")
            self._received += chunk
            await asyncio.sleep(0)  # one that never stops talking must not have the loop for itself
        data = bytes(self._received[:size])
        del self._received[:size]
        return data

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._unsent.clear()
        self._loop.remove_writer(self._end)
        self._end.close()
