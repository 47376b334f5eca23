"""A way to a server that can be cut, silenced or closed: bytes pass through it both ways."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit


class Way:
    """Listens on a port of its own. `cut_after` ends each connection after so many bytes back.

    `answers` counts what came back; the one whose number is in `lost` is lost, with its connection.
    """

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._there = str(parts.hostname), int(parts.port or 0)
        self._server: asyncio.Server | None = None
        self._port = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self.cut_after: int | None = None
        self.silent = False
        self.answers = 0
        self.lost: set[int] = set()
        self.connections = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    async def open(self) -> None:
        self._server = await asyncio.start_server(self._pass, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        """Nobody gets through, and those who are through are cut off."""
        assert self._server is not None
        self._server.close()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        theirs = None
        try:
            there, theirs = await asyncio.open_connection(*self._there)
            async with asyncio.TaskGroup() as both:
                both.create_task(self._copy(reader, theirs, None))
                both.create_task(self._copy(there, writer, self.cut_after, back=True))
        except* (OSError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            for one in (writer, theirs):
                if one is not None:
                    one.transport.abort()

    async def _copy(
        self,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        most: int | None,
        *,
        back: bool = False,
    ) -> None:
        while data := await source.read(2**16):
            if self.silent:
                continue
            if back and data.startswith(b"HTTP/"):
                self.answers += 1
                if self.answers in self.lost:
                    break
            sink.write(data if most is None else data[:most])
            with contextlib.suppress(ConnectionError):
                await sink.drain()
            if most is not None:
                most -= len(data)
                if most <= 0:
                    break
        raise ConnectionResetError


@asynccontextmanager
async def way_to(url: str) -> AsyncIterator[Way]:
    way = Way(url)
    await way.open()
    try:
        yield way
    finally:
        await way.close()
