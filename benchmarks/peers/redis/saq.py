"""saq on Redis: 50 jobs at a time."""

from __future__ import annotations

import importlib

from benchmarks.peers.async_adapter import AsyncQueueAdapter
from benchmarks.peers.child.job_ledger import JobLedger
from benchmarks.peers.postgres.saq import worker
from benchmarks.peers.round_config import RoundConfig


class SaqOnRedis(AsyncQueueAdapter):
    library = "saq"
    package = "saq[redis]"
    server = "redis"
    durability = "keeps a finished job for ten minutes"
    bulk = None
    concurrent = "100 awaited queue.enqueue at once"
    job_share = 0.2

    async def open(self, config: RoundConfig) -> None:
        client = importlib.import_module("redis.asyncio").Redis.from_url(config.url)
        self._queue = importlib.import_module("saq.queue.redis").RedisQueue(client)
        await self._queue.connect()

    async def aenqueue(self, payload: str) -> None:
        await self._queue.enqueue("noop", payload=payload)

    async def aclose(self) -> None:
        await self._queue.disconnect()

    async def awork(self, ledger: JobLedger) -> None:
        ready = worker(self._queue, ledger, 50)
        ledger.wait_for_start()
        await ready.start()

    async def aunfinished(self) -> int:
        count: int = await self._queue.count("incomplete")
        return count


adapter = SaqOnRedis
