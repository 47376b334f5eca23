"""Connections that outlive a store's handle: a new backend plans everything again, for 60 ms."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from windlass.stores.postgres import connection as connections
from windlass.stores.postgres.config import PostgresConfig
from windlass.stores.postgres.connection import Connection

_connect = connections.connect


class WarmConnections:
    """Lends connections to pools of one event loop, and takes them back when they are closed."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._spare: defaultdict[PostgresConfig, list[Any]] = defaultdict(list)

    async def connect(self, config: PostgresConfig) -> Connection:
        if asyncio.get_running_loop() is not self._loop:
            return await _connect(config)  # of a thread that a test started
        spare = self._spare[config]
        while spare:
            connection = spare.pop()
            if not connection.is_closed():
                return cast("Connection", _Lent(connection, spare))
        return cast("Connection", _Lent(await _connect(config), spare))

    async def execute(self, url: str, sql: str) -> None:
        lent = await self.connect(PostgresConfig.of(url))
        await lent.execute(sql)
        await lent.close()

    async def close(self) -> None:
        for spare in self._spare.values():
            while spare:
                await spare.pop().close()


class _Lent:
    def __init__(self, connection: Any, spare: list[Any]) -> None:
        self._connection = connection
        self._spare = spare
        self._returned = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    def is_closed(self) -> bool:
        return self._returned or bool(self._connection.is_closed())

    async def close(self, *, timeout: float | None = None) -> None:
        if not self.is_closed():
            self._returned = True
            try:
                await self._connection.reset(timeout=timeout)  # locks, settings and listeners
            except BaseException:
                self._connection.terminate()
                raise
            self._spare.append(self._connection)


@asynccontextmanager
async def warm_connections() -> AsyncIterator[WarmConnections]:
    """Inside, every pool of this event loop borrows its connections from the same few."""
    warm = WarmConnections()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connections, "connect", warm.connect)
        yield warm
    await warm.close()
