"""Base of adapters for PostgreSQL: counts unfinished jobs in SQL, on its own connection."""

from __future__ import annotations

import importlib
from typing import Any, ClassVar

from benchmarks.peers.async_adapter import AsyncQueueAdapter
from benchmarks.peers.round_config import RoundConfig


class PostgresAdapter(AsyncQueueAdapter):
    """`unfinished_query` counts the jobs that are not finished."""

    server = "postgresql"
    unfinished_query: ClassVar[str]

    def __init__(self, config: RoundConfig) -> None:
        self._url = config.url
        self._count_connection: Any = None
        super().__init__(config)

    async def aunfinished(self) -> int:
        if self._count_connection is None:
            self._count_connection = await importlib.import_module("asyncpg").connect(self._url)
        count: int = await self._count_connection.fetchval(self.unfinished_query)
        return count
