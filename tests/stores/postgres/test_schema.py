"""The schema is made once, by whoever comes first, and its script may be run by hand."""

from __future__ import annotations

import asyncio

from tests.stores.postgres.server import execute

from windlass.stores import migration_script
from windlass.stores.postgres import PostgresStore, schema
from windlass.testing.factories import enqueue_one

NAMES = [f"{each.version:04d}_{each.name}" for each in schema.MIGRATIONS]


async def test_to_migrate_tells_what_was_done_and_again_nothing(new_database: str) -> None:
    async with PostgresStore(new_database) as store:
        assert await store.migrate() == NAMES
        assert await store.migrate() == []


async def test_several_who_migrate_at_once_do_it_once(new_database: str) -> None:
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
