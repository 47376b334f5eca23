"""SQL functions read a bounded number of rows, whatever the table sizes when they were planned.

EXPLAIN cannot show the plans of statements in functions. So a session plans them while the tables
are empty or full. The server then counts the rows that a transaction reads.
"""

from __future__ import annotations

from typing import Any

import asyncpg
import pytest
import pytest_asyncio
from tests.stores.postgres.server import TABLES, execute, migrate

from windlass.core.admission.limit import LIMIT, Limit, LimitSetting
from windlass.core.decisions.outcome import Succeeded, settle
from windlass.core.decisions.transition import Transition
from windlass.core.versioned_record import Put
from windlass.stores.postgres import PostgresStore, rows
from windlass.stores.postgres.connection import SETTINGS
from windlass.stores.postgres.queries import SQL
from windlass.stores.postgres.writes import successes
from windlass.stores.postgres.writes.inserts import insert
from windlass.testing.conformance.limits.concurrency import KEYS, QUEUE, TASK, set_limit
from windlass.testing.factories import claim_all, make_job, no_jitter

JOBS = 1200
MAX_READ = 200  # rows of a table, for settles that admit ten jobs
ROWS_READ = """
    SELECT relname, seq_tup_read, coalesce(idx_tup_fetch, 0) AS by_index
    FROM pg_stat_xact_user_tables WHERE relname LIKE 'windlass%'
"""
LIMITS = {
    "concurrency": {"concurrency": 10},
    "rate": {"concurrency": 10, "starts": 50, "period": 9},
}


pytestmark = pytest.mark.slow


@pytest_asyncio.fixture
async def url(new_database: str) -> str:
    """A database whose statistics change only when a test changes them."""
    await migrate(new_database)
    for table in TABLES:
        await execute(new_database, f"ALTER TABLE windlass_{table} SET (autovacuum_enabled = off);")
    return new_database


async def plan_all(connection: Any) -> None:
    """Make the server plan each statement of the functions, on empty tables."""
    for names in ([QUEUE], [TASK], [f"{KEYS}\x1fkey"]):
        await connection.fetch(SQL.admit, names, [0], [0], 1)


async def fill(store: PostgresStore) -> list[Transition]:
    """Store many waiting, delayed and queued jobs; return the settles of the running ones."""
    for queue in ("default", "other"):
        for options in ({"limit_key": "a"}, {"limit_key": "b"}, {}, {"delay": 60.0}):
            await store.enqueue([make_job(queue=queue, **options) for _ in range(JOBS // 4)])
    await store.enqueue([make_job(task="free", queue="other") for _ in range(JOBS)])
    await store.enqueue([make_job(limit_key=f"key-{number}") for number in range(JOBS // 4)])
    taken = await claim_all(store)
    assert taken
    return [settle(row, Succeeded(), random=no_jitter) for row in taken]


@pytest.mark.parametrize("kind", LIMITS)
@pytest.mark.parametrize(
    "when",
    ["never analyzed", "analyzed when empty", "analyzed when nearly so", "analyzed when full"],
)
async def test_admission_reads_only_the_admitted_jobs(url: str, when: str, kind: str) -> None:
    async with PostgresStore(url) as store:
        for name in (KEYS, TASK, QUEUE):
            await set_limit(store, name, **LIMITS[kind])
        if when == "analyzed when empty":
            await execute(url, "VACUUM ANALYZE")
        connection: Any = await asyncpg.connect(url, server_settings=SETTINGS)
        try:
            if when != "analyzed when full":
                await plan_all(connection)
            if when == "analyzed when nearly so":  # by autovacuum, at any moment
                await store.enqueue([make_job() for _ in range(2)])
                await execute(url, "ANALYZE")
                await plan_all(connection)
            transitions = await fill(store)
            if when == "analyzed when full":
                await execute(url, "VACUUM ANALYZE")
            async with connection.transaction():
                done, admitted, _ = await successes.settle_successes(
                    connection, transitions, None, 0, is_whole_call=True
                )
                read = {row["relname"]: tuple(row)[1:] for row in await connection.fetch(ROWS_READ)}
        finally:
            await connection.close()
    assert len(done) == len(transitions)
    assert admitted
    assert {table: counts for table, counts in read.items() if max(counts) > MAX_READ} == {}


async def test_an_enqueue_reads_only_its_own_limits(url: str) -> None:
    value = LimitSetting(override=Limit(concurrency=1)).encode()
    async with PostgresStore(url) as store:
        puts = [Put(kind=LIMIT, key=f"queue:{number}", value=value) for number in range(JOBS)]
        await store.put_records(puts)
    connection: Any = await asyncpg.connect(url, server_settings=SETTINGS)
    try:
        async with connection.transaction():
            new = [make_job(queue="7", limit_key="a"), make_job(queue="8")]
            stored = await insert(
                connection, [rows.insert_params(job) for job in new], None, gated=True
            )
            read = {row["relname"]: tuple(row)[1:] for row in await connection.fetch(ROWS_READ)}
    finally:
        await connection.close()
    assert [job.gates for job in stored.values()] == [("queue:7",), ("queue:8",)]
    assert max(read["windlass_record"]) <= len(new)
