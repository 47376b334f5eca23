"""Pruning never blocks claims."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import asyncpg
from tests.stores.postgres.consistency_checks import inconsistencies
from tests.stores.postgres.server import execute

from windlass.core.decisions.outcome import Succeeded, settle
from windlass.store import Retention
from windlass.stores.postgres import PostgresStore
from windlass.testing.factories import claim_all, make_job, no_jitter

OLD_JOBS = 4000
BATCH = 500  # as the sweeper requests
MAX_SECONDS = 30.0  # on a busy machine; `lock_waits` shows that no call waited for a lock
PRUNE_ALL = Retention(succeeded=1e-6, canceled=1e-6, failed=1e-6, log=1e-6)
LOCK_WAITS = (
    "SELECT pid, wait_event, query FROM pg_stat_activity WHERE datname = current_database() "
    "AND wait_event_type = 'Lock' AND wait_event <> 'extend'"
)


async def finish_many(store: PostgresStore, number: int) -> None:
    await store.enqueue([make_job(queue="old") for _ in range(number)])
    rows = await claim_all(store, "old", limit=number)
    assert len(rows) == number
    await store.apply([settle(row, Succeeded(), random=no_jitter) for row in rows])


@asynccontextmanager
async def lock_waits(url: str) -> AsyncIterator[list[Any]]:
    """Backends that wait for a lock, polled continuously."""
    connection: Any = await asyncpg.connect(url)
    seen: list[Any] = []

    async def watch() -> None:
        while True:
            seen.extend(await connection.fetch(LOCK_WAITS))

    watching = asyncio.create_task(watch())
    try:
        yield seen
    finally:
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching
        connection.terminate()


async def test_claims_continue_while_many_old_jobs_are_deleted(postgres_url: str) -> None:
    loop = asyncio.get_running_loop()
    async with PostgresStore(postgres_url) as store, PostgresStore(postgres_url) as sweeper:
        await finish_many(store, OLD_JOBS)
        pruned: list[int] = []
        slowest, claimed = 0.0, 0

        async def prune() -> None:
            while sum(pruned) < OLD_JOBS:
                pruned.append((await sweeper.prune(PRUNE_ALL, BATCH)).jobs)

        async with lock_waits(postgres_url) as waits:
            pruning = asyncio.create_task(prune())
            while not pruning.done():
                await store.enqueue([make_job() for _ in range(3)])
                started = loop.time()
                rows = await claim_all(store)
                slowest = max(slowest, loop.time() - started)
                await store.extend([row.lease for row in rows], 30)
                claimed += len(rows)
            await pruning
    assert max(pruned) <= BATCH
    assert claimed >= 3 * len(pruned), "claims continued during and between prunes"
    assert slowest < MAX_SECONDS
    assert waits == []
    assert await inconsistencies(postgres_url) == {}


async def test_a_deletion_that_hangs_blocks_no_other_call(postgres_url: str) -> None:
    """The transaction of the deletion stays open with its locks, while other calls run."""
    async with PostgresStore(postgres_url) as store:
        await finish_many(store, 100)
        connection: Any = await asyncpg.connect(postgres_url)
        try:
            async with connection.transaction():
                numbers = await execute(postgres_url, "SELECT array_agg(n) FROM windlass_job")
                await connection.execute("DELETE FROM windlass_log WHERE n = ANY ($1)", *numbers[0])
                await connection.execute("DELETE FROM windlass_job WHERE n = ANY ($1)", *numbers[0])
                await connection.execute("DELETE FROM windlass_ended")
                async with asyncio.timeout(MAX_SECONDS), lock_waits(postgres_url) as waits:
                    await finish_many(store, 50)
                    await store.enqueue([make_job(unique_key="a"), make_job(request_id="b")])
                    assert len(await claim_all(store)) == 2
                assert waits == []
        finally:
            await connection.close()


async def test_a_concurrent_prune_is_skipped(postgres_url: str) -> None:
    async with PostgresStore(postgres_url) as store, PostgresStore(postgres_url) as other:
        await finish_many(store, 1000)
        both = await asyncio.gather(store.prune(PRUNE_ALL, 1000), other.prune(PRUNE_ALL, 1000))
        assert sum(pruned_once.jobs for pruned_once in both) == 1000
        assert (await store.prune(PRUNE_ALL, 1000)).jobs == 0
