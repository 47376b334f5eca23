"""pgqueuer: batches of 1,000, an asyncpg pool of 2 to 10 connections."""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from benchmarks.peers.child.job_ledger import JobLedger
from benchmarks.peers.postgres.postgres_adapter import PostgresAdapter
from benchmarks.peers.round_config import RoundConfig

BATCH = 1_000
TASK = "noop"


class PgQueuer(PostgresAdapter):
    library = "pgqueuer"
    package = "pgqueuer"
    durability = "deletes a finished job, keeps a log row of it"
    bulk = "Queries.enqueue of lists"
    concurrent = "100 awaited Queries.enqueue at once, pool of 10"
    unfinished_query = "SELECT count(*) FROM pgqueuer"

    async def open(self, config: RoundConfig) -> None:
        asyncpg = importlib.import_module("asyncpg")
        self._library = importlib.import_module("pgqueuer")
        drivers = importlib.import_module("pgqueuer.db")
        self._pool = await asyncpg.create_pool(config.url, min_size=2, max_size=10)
        self._queries = self._library.Queries(drivers.AsyncpgPoolDriver(self._pool))
        if not await self._queries.has_table("pgqueuer"):
            await self._queries.install()

    async def aenqueue(self, payload: str) -> None:
        await self._queries.enqueue(TASK, payload.encode())

    async def aenqueue_bulk(self, payloads: Sequence[str]) -> None:
        count = len(payloads)
        texts = [payload.encode() for payload in payloads]
        await self._queries.enqueue([TASK] * count, texts, [0] * count)

    async def aclose(self) -> None:
        await self._pool.close()

    async def awork(self, ledger: JobLedger) -> None:
        manager = self._library.QueueManager(self._queries)

        @manager.entrypoint(TASK)  # type: ignore[untyped-decorator]
        async def noop(job: object) -> None:
            ledger.record_run(job.payload.decode())  # type: ignore[attr-defined]

        ledger.wait_for_start()
        await manager.run(batch_size=BATCH)


adapter = PgQueuer
