"""taskiq on a Redis stream: 10 tasks at a time, 100 prefetched, acknowledged after each."""

from __future__ import annotations

import importlib

from benchmarks.peers.async_adapter import AsyncQueueAdapter
from benchmarks.peers.child.job_ledger import JobLedger
from benchmarks.peers.round_config import RoundConfig

STREAM = GROUP = "taskiq"


class Taskiq(AsyncQueueAdapter):
    library = "taskiq_redis"
    package = "taskiq-redis"
    server = "redis"
    durability = "keeps the entries of finished jobs in the stream"
    bulk = None
    concurrent = "100 awaited task.kiq at once"
    job_share = 0.2

    async def open(self, config: RoundConfig) -> None:
        library = importlib.import_module("taskiq_redis")
        self._redis = importlib.import_module("redis.asyncio").Redis.from_url(config.url)
        self._broker = library.RedisStreamBroker(config.url, consumer_id="0")
        self._ledger: JobLedger | None = None

        @self._broker.task(task_name="noop")  # type: ignore[untyped-decorator]
        async def noop(payload: str) -> None:
            assert self._ledger is not None
            self._ledger.record_run(payload)

        self._noop = noop
        await self._broker.startup()

    async def aenqueue(self, payload: str) -> None:
        await self._noop.kiq(payload)

    async def aclose(self) -> None:
        await self._broker.shutdown()

    async def awork(self, ledger: JobLedger) -> None:
        self._ledger = ledger
        run = importlib.import_module("taskiq.api").run_receiver_task
        ledger.wait_for_start()
        await run(self._broker, max_async_tasks=10, max_prefetch=100)

    async def aunfinished(self) -> int:
        """Those not yet handed out, and those handed out but not acknowledged."""
        for group in await self._redis.xinfo_groups(STREAM):
            if group["name"] == GROUP.encode():
                return int(group["pending"]) + int(group["lag"] or 0)
        return 1


adapter = Taskiq
