"""saq on PostgreSQL: 20 jobs at a time, LISTEN/NOTIFY."""

from __future__ import annotations

import importlib
from typing import Any

from benchmarks.peers.child.job_ledger import JobLedger
from benchmarks.peers.postgres.postgres_adapter import PostgresAdapter
from benchmarks.peers.round_config import RoundConfig


def worker(queue: Any, ledger: JobLedger, concurrency: int) -> Any:
    """The worker for both kinds of queue."""

    async def noop(ctx: object, *, payload: str) -> None:  # noqa: ARG001
        ledger.record_run(payload)

    library = importlib.import_module("saq")
    return library.Worker(queue=queue, functions=[("noop", noop)], concurrency=concurrency)


class Saq(PostgresAdapter):
    library = "saq"
    package = "saq[postgres]"
    durability = "keeps a finished job for ten minutes"
    bulk = None
    concurrent = "100 awaited queue.enqueue at once, pool of 20"
    unfinished_query = "SELECT count(*) FROM saq_jobs WHERE status IN ('new', 'queued', 'active')"
    job_share = 0.1

    async def open(self, config: RoundConfig) -> None:
        queues = importlib.import_module("saq.queue.postgres")
        self._queue = queues.PostgresQueue.from_url(config.url)
        await self._queue.connect()

    async def aenqueue(self, payload: str) -> None:
        await self._queue.enqueue("noop", payload=payload)

    async def aclose(self) -> None:
        await self._queue.disconnect()

    async def awork(self, ledger: JobLedger) -> None:
        ready = worker(self._queue, ledger, 20)
        ledger.wait_for_start()
        await ready.start()


adapter = Saq
