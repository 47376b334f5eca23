"""TCP proxy for tests: it can cut, silence or refuse connections to a server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit


class NetworkProxy:
    """Listens on its own port. `cut_after` closes each connection after so many response bytes.

    `responses` counts responses. A response whose number is in `lost` is dropped, with its
    connection.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._target = str(parts.hostname), int(parts.port or 0)
        self._server: asyncio.Server | None = None
        self._port = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self.cut_after: int | None = None
        self.silent = False
        self.responses = 0
        self.lost: set[int] = set()
        self.connections = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._forward, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Refuse new connections, and close the open ones."""
        assert self._server is not None
        self._server.close()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        upstream = None
        try:
            responses, upstream = await asyncio.open_connection(*self._target)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._copy(reader, upstream, None))
                both.create_task(self._copy(responses, writer, self.cut_after, is_response=True))
        except* (OSError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            for end in (writer, upstream):
                if end is not None:
                    end.transport.abort()

    async def _copy(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        limit: int | None,
        *,
        is_response: bool = False,
    ) -> None:
        while data := await source.read(2**16):
            if self.silent:
                continue
            if is_response and data.startswith(b"HTTP/"):
                self.responses += 1
                if self.responses in self.lost:
                    break
            sink.write(data if limit is None else data[:limit])
            with contextlib.suppress(ConnectionError):
                await sink.drain()
            if limit is not None:
                limit -= len(data)
                if limit <= 0:
                    break
        raise ConnectionResetError


@asynccontextmanager
async def proxy_to(url: str) -> AsyncIterator[NetworkProxy]:
    proxy = NetworkProxy(url)
    await proxy.open()
    try:
        yield proxy
    finally:
        await proxy.close()
