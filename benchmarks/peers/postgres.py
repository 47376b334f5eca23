"""A side on PostgreSQL: what is left of its jobs is asked in SQL, on a connection of its own."""

from __future__ import annotations

import importlib
from typing import Any, ClassVar

from windlass.bench.async_side import AsyncSide
from windlass.bench.round_config import Place


class PostgresSide(AsyncSide):
    """`waiting` counts the jobs that are not finished."""

    server = "postgresql"
    waiting: ClassVar[str]

    def __init__(self, place: Place) -> None:
        self._url = place.url
        self._asking: Any = None
        super().__init__(place)

    async def left(self) -> int:
        if self._asking is None:
            self._asking = await importlib.import_module("asyncpg").connect(self._url)
        count: int = await self._asking.fetchval(self.waiting)
        return count
