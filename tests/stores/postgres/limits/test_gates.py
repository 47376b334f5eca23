"""Gates under concurrency: order of sweeps, locks, deletion of idle gates."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
from tests.stores.postgres.consistency_checks import inconsistencies
from tests.stores.postgres.limits.test_limit_transactions import ENQUEUE, item
from tests.stores.postgres.server import execute
from tests.stores.postgres.transactions.test_open_transactions import LOCK, open_transaction
from tests.worker.event_waits import eventually

from windlass.core.admission.limit import LIMIT, Limit, LimitSetting
from windlass.core.versioned_record import Put
from windlass.store import Retention
from windlass.stores.postgres import PostgresStore
from windlass.stores.postgres.queries import SQL
from windlass.testing.clock import VirtualClock
from windlass.testing.conformance.limits.concurrency import (
    KEYS,
    QUEUE,
    TASK,
    enqueue_several,
    set_limit,
    settle_all,
)
from windlass.testing.factories import claim_all, make_job, sweep_all

ADMISSION_LOCK = 4242  # advisory lock that delays the admission at a gate
PAUSE_FUNCTION = f"""CREATE FUNCTION windlass_pause() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
    PERFORM pg_advisory_xact_lock({ADMISSION_LOCK}); RETURN true; END $$"""


async def delay_admission(url: str) -> None:
    """Make `windlass_admit_waiting` wait between its read of a gate and its first lock."""
    await execute(url, PAUSE_FUNCTION)
    [[definition]] = await execute(
        url, "SELECT pg_get_functiondef('windlass_admit_waiting'::regproc)"
    )
    delayed = definition.replace(
        "WHERE job.n = entry.n", "WHERE windlass_pause() AND job.n = entry.n"
    )
    assert delayed != definition
    await execute(url, delayed)


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    async with PostgresStore(postgres_url) as opened:
        yield opened


async def test_gates_without_waiting_jobs_do_not_block_the_sweep_of_others(
    store: PostgresStore,
) -> None:
    """Otherwise a changed limit with ten thousand keys would block all sweeps for minutes."""
    await set_limit(store, KEYS, concurrency=1)
    for key in "abc":
        await enqueue_several(store, 1, limit_key=key)
    await settle_all(store, await claim_all(store))
    _, waiting = await enqueue_several(store, 2, limit_key="d")
    await set_limit(store, KEYS, concurrency=2)
    assert [row.id for row in await store.due(1)] == [waiting.id]


async def test_gate_checks_without_waiting_jobs_do_not_block_the_sweep_of_others(
    store: PostgresStore, postgres_url: str
) -> None:
    await set_limit(store, KEYS, concurrency=1)
    await set_limit(store, QUEUE, concurrency=5)
    for key in "abc":
        await enqueue_several(store, 1, limit_key=key)
    for row in await claim_all(store):
        transition = {"id": str(row.id), "fence": row.fence, "token": str(row.token)}
        await execute(postgres_url, f"SELECT windlass_succeed('{json.dumps(transition)}')")
    new = item()
    await execute(postgres_url, f"SELECT windlass_enqueue('{new}')")
    assert [str(row.id) for row in await store.due(1)] == [json.loads(new)["id"]]


async def test_a_rate_limit_with_free_capacity_delays_no_job(postgres_url: str) -> None:
    """Otherwise sweeps would check the gate repeatedly, as long as its jobs run."""
    clock = VirtualClock()
    async with PostgresStore(postgres_url, clock=clock) as store:
        await set_limit(store, QUEUE, concurrency=2, rate="1/s")
        for _ in range(2):
            await enqueue_several(store, 1)
            assert len(await claim_all(store)) == 1
            clock.advance(2)
        await enqueue_several(store, 1)
        [gate] = await store.insights.gates([QUEUE])
        assert (gate.in_use, gate.waiting, gate.next_check_at) == (2, 1, None)
        assert await store.due(10) == []


async def test_a_locked_job_at_a_gate_does_not_block_others(
    store: PostgresStore, postgres_url: str
) -> None:
    await set_limit(store, QUEUE, concurrency=1)
    _, held, other, last = await enqueue_several(store, 4)
    [row] = await claim_all(store)
    async with open_transaction(postgres_url, LOCK, held.id):
        await settle_all(store, [row])
        [row] = await claim_all(store)
        assert row.id == other.id
        await set_limit(store, QUEUE, concurrency=2)
        await sweep_all(store)
        assert [row.id for row in await claim_all(store)] == [last.id]
    await settle_all(store, [row])
    await sweep_all(store)
    assert [row.id for row in await claim_all(store)] == [held.id]
    assert await inconsistencies(postgres_url) == {}


async def test_a_job_changed_while_a_gate_opens_is_admitted_by_the_next_sweep(
    store: PostgresStore, postgres_url: str
) -> None:
    """The lock reads the new version; the update finds no row of the old version."""
    await set_limit(store, QUEUE, concurrency=2)
    *_, changed, other = await enqueue_several(store, 4)
    rows = await claim_all(store)
    await delay_admission(postgres_url)
    async with open_transaction(
        postgres_url, "SELECT pg_advisory_xact_lock($1)", ADMISSION_LOCK
    ) as blocker:
        settles = asyncio.create_task(settle_all(store, rows))
        await wait_for_a_blocked_session(postgres_url)
        await execute(
            postgres_url, f"UPDATE windlass_job SET signals = 1 WHERE id = '{changed.id}'"
        )
        await blocker.rollback()
        await settles
    assert [row.id for row in await claim_all(store)] == [other.id]
    assert await inconsistencies(postgres_url) == {}
    await sweep_all(store)
    assert [row.id for row in await claim_all(store)] == [changed.id]
    assert await inconsistencies(postgres_url) == {}


async def test_a_limit_change_locks_gates_in_the_common_order(
    store: PostgresStore, postgres_url: str
) -> None:
    for name in (TASK, QUEUE):
        await set_limit(store, name, concurrency=1)
    await enqueue_several(store, 1)
    lock = "SELECT FROM windlass_gate WHERE gate = $1 FOR UPDATE"
    value = LimitSetting(override=Limit(concurrency=2)).encode()
    async with open_transaction(postgres_url, lock, TASK) as blocker:
        puts = [Put(kind=LIMIT, key=name, value=value) for name in (QUEUE, TASK)]
        change = asyncio.create_task(store.put_records(puts))
        await wait_for_a_blocked_session(postgres_url)
        await execute(postgres_url, f"{lock} NOWAIT".replace("$1", f"'{QUEUE}'"))
        await blocker.rollback()
        assert all(answer.applied for answer in await change)


async def test_a_raised_limit_applies_to_a_gate_created_at_the_same_time(
    store: PostgresStore, postgres_url: str
) -> None:
    await set_limit(store, QUEUE, concurrency=1)
    connection: Any = await asyncpg.connect(postgres_url)
    try:
        async with connection.transaction():
            for _ in range(2):
                await connection.fetch(ENQUEUE, item())
            await connection.fetch(
                "SELECT windlass_admit($1, NULL, NULL, windlass_now(NULL), true)", [QUEUE]
            )
            change = asyncio.create_task(set_limit(store, QUEUE, concurrency=2))
            done, _ = await asyncio.wait(
                [change, asyncio.create_task(wait_for_a_blocked_session(postgres_url))],
                return_when=asyncio.FIRST_COMPLETED,
            )
            assert done
    finally:
        await connection.close()
    await change
    await sweep_all(store)
    assert len(await claim_all(store)) == 2


@pytest.mark.parametrize("change", ["put", "delete"])
async def test_changes_of_several_limits_never_deadlock_with_admission(
    store: PostgresStore, postgres_url: str, change: str
) -> None:
    """Admission holds a task gate and creates a queue gate; a change needs the records of both."""
    await set_limit(store, TASK, concurrency=1)
    await enqueue_several(store, 1)
    await set_limit(store, QUEUE, concurrency=1)
    value = LimitSetting(override=Limit(concurrency=2)).encode()
    puts = [Put(kind=LIMIT, key=name, value=value) for name in (QUEUE, TASK)]
    connection: Any = await asyncpg.connect(postgres_url)
    try:
        async with connection.transaction():
            # Shorter than deadlock_timeout: otherwise the server resolves the deadlock, and a retry
            # hides it.
            await connection.execute("SET LOCAL lock_timeout = '500ms'")
            await connection.fetch(SQL.admit, [TASK], [], [], 1)
            changing = asyncio.create_task(
                store.put_records(puts)
                if change == "put"
                else store.delete_records(LIMIT, [QUEUE, TASK])
            )
            await wait_for_a_blocked_session(postgres_url)
            await connection.fetch(SQL.admit, [QUEUE], [], [], 1)
    finally:
        await connection.close()
    await changing


async def test_idle_gates_are_deleted_faster_than_gates_are_created(postgres_url: str) -> None:
    """A sweeper prunes at most five hundred jobs a minute, unless more are past retention."""
    clock = VirtualClock()
    async with PostgresStore(postgres_url, clock=clock) as store:
        await set_limit(store, KEYS, concurrency=1)
        await store.enqueue([make_job(limit_key=f"key-{number}") for number in range(20)])
        await settle_all(store, await claim_all(store, limit=20))
        clock.advance(120)
        await store.prune(Retention(), 2)
    assert await execute(postgres_url, "SELECT gate FROM windlass_gate") == []


async def test_full_gates_do_not_prevent_the_deletion_of_idle_gates(postgres_url: str) -> None:
    """The gates were idle for a while, then got a long-running job."""
    clock = VirtualClock()
    async with PostgresStore(postgres_url, clock=clock) as store:
        await set_limit(store, KEYS, concurrency=1)
        busy = [make_job(limit_key=f"key-{number}") for number in range(20)]
        await store.enqueue(busy)
        await settle_all(store, await claim_all(store))
        await store.enqueue([make_job(limit_key=job.limit_key) for job in busy])
        assert len(await claim_all(store)) == len(busy)
        clock.advance(1)
        await store.enqueue([make_job(limit_key="idle")])
        await settle_all(store, await claim_all(store))
        clock.advance(120)
        for _ in range(3):
            await store.prune(Retention(), 1)
    gates = await execute(postgres_url, "SELECT gate FROM windlass_gate WHERE gate ~ 'idle'")
    assert gates == []


async def test_a_process_frozen_during_a_limit_change_keeps_no_gate_lock(
    store: PostgresStore, postgres_url: str
) -> None:
    """Behind a pooler, sessions do not have the settings of the store."""
    await set_limit(store, QUEUE, concurrency=1)
    connection: Any = await asyncpg.connect(postgres_url)
    try:
        async with connection.transaction():
            await connection.fetch(SQL.lock_gates, QUEUE)
            statement = "SHOW idle_in_transaction_session_timeout"
            assert await connection.fetchval(statement) == "5s"
    finally:
        await connection.close()


async def wait_for_a_blocked_session(url: str) -> None:
    waits = "SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    database = " AND datname = current_database()"

    async def is_blocked() -> bool:
        return bool(await execute(url, waits + database))

    await eventually(is_blocked)
