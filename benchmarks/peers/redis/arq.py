"""arq: 100 jobs at a time, polled every 10 ms; no results kept."""

from __future__ import annotations

import importlib

from benchmarks.peers.async_adapter import AsyncQueueAdapter
from benchmarks.peers.child.job_ledger import JobLedger
from benchmarks.peers.round_config import RoundConfig


class Arq(AsyncQueueAdapter):
    library = "arq"
    package = "arq"
    server = "redis"
    durability = "keeps nothing of a finished job"
    bulk = None
    concurrent = "100 awaited enqueue_job at once"
    job_share = 0.1

    async def open(self, config: RoundConfig) -> None:
        self._library = importlib.import_module("arq")
        connections = importlib.import_module("arq.connections")
        path = config.url.removeprefix("unix://")
        settings = connections.RedisSettings(unix_socket_path=path)
        self._pool = await self._library.create_pool(settings)

    async def aenqueue(self, payload: str) -> None:
        await self._pool.enqueue_job("noop", payload)

    async def aclose(self) -> None:
        await self._pool.aclose()

    async def awork(self, ledger: JobLedger) -> None:
        async def noop(ctx: object, payload: str) -> None:  # noqa: ARG001
            ledger.record_run(payload)

        worker = self._library.Worker(
            functions=[self._library.func(noop, name="noop", keep_result=0)],
            redis_pool=self._pool,
            max_jobs=100,
            poll_delay=0.01,
            keep_result=0,
            handle_signals=False,
        )
        ledger.wait_for_start()
        await worker.async_run()

    async def aunfinished(self) -> int:
        count: int = await self._pool.zcard("arq:queue")
        return count


adapter = Arq
