"""A plain table and asyncpg without a library: the limit of the server, not a usable queue.

It has no leases, retries or log: jobs of a worker that dies are lost.
"""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Sequence

from benchmarks.peers.child.job_ledger import JobLedger
from benchmarks.peers.postgres.postgres_adapter import PostgresAdapter
from benchmarks.peers.queue_adapter import POLL_INTERVAL
from benchmarks.peers.round_config import RoundConfig

TABLE = """
CREATE TABLE IF NOT EXISTS job (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    state smallint NOT NULL DEFAULT 0,
    payload text NOT NULL
)
"""
INDEX = "CREATE INDEX IF NOT EXISTS job_waiting ON job (id) WHERE state = 0"
INSERT = "INSERT INTO job (payload) VALUES ($1)"
INSERT_MANY = "INSERT INTO job (payload) SELECT unnest($1::text[])"
BATCH = 1_000
CLAIM = """
WITH next AS MATERIALIZED (
    SELECT id FROM job WHERE state = 0 ORDER BY id LIMIT $1 FOR UPDATE SKIP LOCKED
)
UPDATE job SET state = 1 FROM next WHERE job.id = next.id RETURNING job.id, job.payload
"""
FINISH = "UPDATE job SET state = 2 WHERE id = ANY($1::bigint[])"


class Bare(PostgresAdapter):
    library = "asyncpg"
    package = "asyncpg"
    durability = "a plain table, claimed and finished 1,000 rows at a time, rows kept"
    bulk = "INSERT of unnest"
    unfinished_query = "SELECT count(*) FROM job WHERE state < 2"

    async def open(self, config: RoundConfig) -> None:
        asyncpg = importlib.import_module("asyncpg")
        self._connection = await asyncpg.connect(config.url)
        await self._connection.execute(TABLE)
        await self._connection.execute(INDEX)

    async def aenqueue(self, payload: str) -> None:
        await self._connection.execute(INSERT, payload)

    async def aenqueue_bulk(self, payloads: Sequence[str]) -> None:
        await self._connection.execute(INSERT_MANY, payloads)

    async def aclose(self) -> None:
        await self._connection.close()

    async def awork(self, ledger: JobLedger) -> None:
        ledger.wait_for_start()
        while True:
            rows = await self._connection.fetch(CLAIM, BATCH)
            for row in rows:
                ledger.record_run(row["payload"])
            if rows:
                await self._connection.execute(FINISH, [row["id"] for row in rows])
            else:
                await asyncio.sleep(POLL_INTERVAL)


adapter = Bare
