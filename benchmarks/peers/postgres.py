"""Base of sides on PostgreSQL: counts unfinished jobs in SQL, on its own connection."""

from __future__ import annotations

import importlib
from typing import Any, ClassVar

from windlass.bench.async_side import AsyncSide
from windlass.bench.round_config import RoundConfig


class PostgresSide(AsyncSide):
    """`waiting` counts the jobs that are not finished."""

    server = "postgresql"
    waiting: ClassVar[str]

    def __init__(self, place: RoundConfig) -> None:
        self._url = place.url
        self._asking: Any = None
        super().__init__(place)

    async def aunfinished(self) -> int:
        if self._asking is None:
            self._asking = await importlib.import_module("asyncpg").connect(self._url)
        count: int = await self._asking.fetchval(self.waiting)
        return count
