"""saq on Redis: 50 jobs at a time."""

from __future__ import annotations

import importlib

from benchmarks.peers.saq import worker
from windlass.bench.async_side import AsyncSide
from windlass.bench.job_ledger import Ledger
from windlass.bench.round_config import RoundConfig


class SaqOnRedis(AsyncSide):
    library = "saq"
    package = "saq[redis]"
    server = "redis"
    durability = "keeps a finished job for ten minutes"
    bulk = None
    together = "100 awaited queue.enqueue at once"
    share = 0.2

    async def open(self, place: RoundConfig) -> None:
        client = importlib.import_module("redis.asyncio").Redis.from_url(place.url)
        self._queue = importlib.import_module("saq.queue.redis").RedisQueue(client)
        await self._queue.connect()

    async def aput(self, payload: str) -> None:
        await self._queue.enqueue("noop", payload=payload)

    async def aclose(self) -> None:
        await self._queue.disconnect()

    async def awork(self, ledger: Ledger) -> None:
        ready = worker(self._queue, ledger, 50)
        ledger.wait_for_start()
        await ready.start()

    async def aunfinished(self) -> int:
        count: int = await self._queue.count("incomplete")
        return count


side = SaqOnRedis
