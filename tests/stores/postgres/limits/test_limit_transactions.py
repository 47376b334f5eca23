"""Limits with transactions of callers, open transactions, and leaked slots."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
from tests.stores.postgres.consistency_checks import inconsistencies
from tests.stores.postgres.server import execute
from tests.stores.postgres.transactions.test_open_transactions import LOCK, open_transaction

from windlass.core.decisions.outcome import Succeeded, settle
from windlass.core.ids import uuid7
from windlass.core.job.state import State
from windlass.stores.postgres import PostgresConfig, PostgresStore
from windlass.testing.clock import VirtualClock
from windlass.testing.conformance.limits.concurrency import (
    QUEUE,
    enqueue_several,
    set_limit,
    settle_all,
)
from windlass.testing.factories import (
    cancel_one,
    claim_all,
    get_one,
    make_job,
    no_jitter,
    sweep_all,
)

ENQUEUE = "SELECT * FROM windlass_enqueue($1::jsonb)"


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    async with PostgresStore(PostgresConfig(url=postgres_url)) as opened:
        yield opened


def item(**values: object) -> str:
    return json.dumps({"id": str(uuid7()), "task": "test.noop", **values})


async def test_a_job_of_a_callers_transaction_is_admitted_after_the_commit(
    store: PostgresStore, postgres_url: str
) -> None:
    await set_limit(store, QUEUE, concurrency=1)
    connection: Any = await asyncpg.connect(postgres_url)
    try:
        async with connection.transaction():
            answers = [(await connection.fetch(ENQUEUE, item()))[0] for _ in range(2)]
            assert [answer["gated"] for answer in answers] == [True, True]
            # No other call waits for that transaction.
            [other] = await asyncio.wait_for(enqueue_several(store, 1), 10)
            assert other.state is State.QUEUED
        assert [row.id for row in await claim_all(store)] == [other.id]
        await sweep_all(store)
        assert await claim_all(store) == []
        await cancel_one(store, other.id)
        await settle_all(store, [await get_one(store, other.id)])
        assert [row.id for row in await claim_all(store)] == [answers[0]["id"]]
    finally:
        await connection.close()


async def test_a_callers_job_is_admitted_by_the_next_sweep(
    store: PostgresStore, postgres_url: str
) -> None:
    await set_limit(store, QUEUE, concurrency=1)
    await execute(postgres_url, f"SELECT windlass_enqueue('{item()}')")
    assert await claim_all(store) == []
    await sweep_all(store)
    assert len(await claim_all(store)) == 1
    assert await store.due(10) == []


async def test_a_success_in_a_tasks_own_transaction_releases_its_slot(
    store: PostgresStore, postgres_url: str
) -> None:
    await set_limit(store, QUEUE, concurrency=1)
    _, second = await enqueue_several(store, 2)
    [row] = await claim_all(store)
    transition = {"id": str(row.id), "fence": row.fence, "token": str(row.token)}
    await execute(postgres_url, f"SELECT windlass_succeed('{json.dumps(transition)}')")
    await sweep_all(store)
    assert [row.id for row in await claim_all(store)] == [second.id]


async def test_a_child_released_by_a_callers_success_waits_at_its_gate(
    store: PostgresStore, postgres_url: str
) -> None:
    [parent] = await enqueue_several(store, 1)
    [row] = await claim_all(store)
    await set_limit(store, QUEUE, concurrency=1)
    children = [make_job(depends_on=(parent.id,)) for _ in range(2)]
    await store.enqueue(children)
    transition = {"id": str(row.id), "fence": row.fence, "token": str(row.token)}
    await execute(postgres_url, f"SELECT windlass_succeed('{json.dumps(transition)}')")
    assert (await get_one(store, children[0].id)).gate == QUEUE
    await sweep_all(store)
    assert [row.id for row in await claim_all(store)] == [children[0].id]


async def test_a_displaced_waiting_job_leaves_its_gate(
    store: PostgresStore, postgres_url: str
) -> None:
    await set_limit(store, QUEUE, concurrency=1)
    await enqueue_several(store, 1)
    [row] = await claim_all(store)
    first, second = (item(unique_key="k", debounce=True) for _ in range(2))
    for new in (first, second):
        await execute(postgres_url, f"SELECT windlass_enqueue('{new}')")
    await settle_all(store, [row])
    [claimed] = await claim_all(store)
    assert str(claimed.id) == json.loads(second)["id"]
    await settle_all(store, [claimed])
    assert await claim_all(store) == []
    assert await inconsistencies(postgres_url) == {}


async def test_a_locked_waiting_job_does_not_block_others(
    store: PostgresStore, postgres_url: str
) -> None:
    await set_limit(store, QUEUE, concurrency=1)
    _, held = await enqueue_several(store, 2)
    [row] = await claim_all(store)
    async with open_transaction(postgres_url, LOCK, held.id):
        await asyncio.wait_for(settle_all(store, [row]), 10)
        # No other call waits; the sweep retries, and the job is still locked.
        await asyncio.wait_for(sweep_all(store), 10)
    await sweep_all(store)
    assert [row.id for row in await claim_all(store)] == [held.id]


async def test_a_leaked_slot_is_found_within_a_second(
    postgres_url: str,
) -> None:
    clock = VirtualClock()
    async with PostgresStore(PostgresConfig(url=postgres_url), clock=clock) as store:
        await set_limit(store, QUEUE, concurrency=1)
        first, second = await enqueue_several(store, 2)
        [row] = await claim_all(store)
        # As if another version without gates had ended it.
        await execute(
            postgres_url,
            f"UPDATE windlass_job SET state = 'succeeded', ended_at = 1 WHERE id = '{first.id}'",
        )
        clock.advance(1.5)
        [third] = await enqueue_several(store, 1)  # the next job at the gate
        assert [row.id for row in await claim_all(store)] == [second.id]
        assert (await get_one(store, third.id)).gate == QUEUE
        assert row.id == first.id


@pytest.mark.slow
async def test_concurrent_enqueues_and_settles_neither_exceed_limits_nor_starve(
    store: PostgresStore, postgres_url: str
) -> None:
    """With three gates that are full, eight handles, and jobs of many keys."""
    await set_limit(store, "key:test.noop", concurrency=2)
    await set_limit(store, "task:test.noop", concurrency=5)
    await set_limit(store, QUEUE, concurrency=4)
    handles = [store.twin() for _ in range(8)]
    done: set[object] = set()

    async def work(handle: PostgresStore, number: int) -> None:
        for round_ in range(6):
            keys = [f"key-{(number + round_ + place) % 5}" for place in range(5)]
            await handle.enqueue([make_job(limit_key=key) for key in keys])
            for row in await claim_all(handle, limit=3):
                [answer] = await handle.apply([settle(row, Succeeded(), random=no_jitter)])
                assert answer.applied
                done.add(row.id)

    try:
        await asyncio.gather(*(work(handle, number) for number, handle in enumerate(handles)))
        while claimed := await claim_all(store):
            assert len(claimed) <= 4
            await settle_all(store, claimed)
            done.update(row.id for row in claimed)
    finally:
        for handle in handles:
            await handle.close()
    assert len(done) == 8 * 6 * 5
    connection: Any = await asyncpg.connect(postgres_url)
    left = await connection.fetchval("SELECT count(*) FROM windlass_gate_queue")
    permits = await connection.fetchval("SELECT count(*) FROM windlass_permit")
    await connection.close()
    assert (left, permits, await inconsistencies(postgres_url)) == (0, 0, {})
