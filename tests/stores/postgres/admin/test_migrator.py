"""Concurrent migrations run once, and the script can be run by hand."""

from __future__ import annotations

import asyncio

from tests.stores.postgres.consistency_checks import inconsistencies
from tests.stores.postgres.server import execute

from windlass.core.decisions.outcome import Released, Succeeded
from windlass.core.query.job_query import JobQuery
from windlass.store import AttemptRecords
from windlass.stores import migration_script
from windlass.stores.postgres import PostgresStore
from windlass.stores.postgres.admin import migrator
from windlass.testing.factories import (
    claim_all,
    enqueue_one,
    log_record,
    make_job,
    settle_one,
    sweep_all,
)

LAST_OF_32_BITS = 2**31 - 1
NAMES = [f"{migration.version:04d}_{migration.name}" for migration in migrator.MIGRATIONS]


async def test_migrate_returns_what_was_applied_and_nothing_the_second_time(
    new_database: str,
) -> None:
    async with PostgresStore(new_database) as store:
        assert await store.migrate() == NAMES
        assert await store.migrate() == []


async def test_concurrent_migrations_run_once(new_database: str) -> None:
    stores = [PostgresStore(new_database) for _ in range(5)]

    done = await asyncio.gather(*(store.migrate() for store in stores))

    assert sorted(done, key=len) == [[], [], [], [], NAMES]
    for store in stores:
        await enqueue_one(store)
        await store.close()


async def test_the_printed_script_run_by_hand_leaves_nothing_to_do(new_database: str) -> None:
    script = await asyncio.to_thread(migration_script, new_database)
    assert script.startswith("BEGIN;")
    assert script.endswith("COMMIT;\n")
    await execute(new_database, script)

    assert await asyncio.to_thread(migration_script, new_database) == ""
    async with PostgresStore(new_database) as store:
        assert await store.migrate() == []
        await enqueue_one(store)


async def test_serial_numbers_exceed_32_bits(new_database: str) -> None:
    """A busy server assigns as many positions within months. Covers fences and events, too."""
    async with PostgresStore(new_database) as store:
        await store.migrate()
        await execute(new_database, f"SELECT setval('windlass_serial', {LAST_OF_32_BITS - 1})")
        await store.enqueue([make_job(), make_job(), make_job(unique_key="u", delay=0.001)])
        numbers = "attempt = {0}, fence = {0}, seq = {0}, queued_seq = {0}, last_record = {0}"
        counts = "retry_count = {0}, crash_count = {0}"
        await execute(
            new_database,
            f"UPDATE windlass_job SET {numbers}, {counts}".format(LAST_OF_32_BITS),
        )
        first, second = await claim_all(store)
        [result] = await store.record(
            [AttemptRecords(first.lease, [log_record(LAST_OF_32_BITS + 1, "here")])]
        )
        assert result.applied
        assert (await settle_one(store, first, Succeeded())).applied
        assert (await settle_one(store, second, Released())).applied
        assert len(await sweep_all(store)) == 1
        rows = (await store.find(JobQuery())).rows

        assert [row.serial for row in rows] == [LAST_OF_32_BITS + n for n in (2, 1, 0)]
        assert {row.fence for row in rows[1:]} == {LAST_OF_32_BITS + 1}
        assert all((row.position or 0) > LAST_OF_32_BITS + 2 for row in rows[:2])
        again = await claim_all(store)
        assert len(await store.extend([row.lease for row in again], 60)) == 2
        attempts = await store.insights.attempts(second.id)
        assert attempts is not None
        assert [past.fence for past in attempts] == [LAST_OF_32_BITS + 1, LAST_OF_32_BITS + 2]
        assert [answer.applied for answer in await store.delete([first.id])] == [True]
    assert await inconsistencies(new_database) == {}
