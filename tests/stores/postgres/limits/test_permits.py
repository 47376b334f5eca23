"""Counters of permits at a gate, and starts that claims record."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
from tests.stores.postgres.consistency_checks import inconsistencies
from tests.stores.postgres.limits.test_gates import wait_for_a_blocked_session
from tests.stores.postgres.server import execute
from tests.stores.postgres.transactions.test_open_transactions import LOCK, open_transaction

from windlass.core.admission.limit import LIMIT
from windlass.core.decisions.outcome import Failed, Outcome, Released, Succeeded, settle
from windlass.core.job.state import State
from windlass.stores.postgres import PostgresStore
from windlass.stores.postgres.writes import successes
from windlass.testing.clock import VirtualClock
from windlass.testing.conformance.limits.concurrency import (
    KEYS,
    QUEUE,
    TASK,
    enqueue_several,
    set_limit,
    settle_all,
)
from windlass.testing.factories import (
    cancel_one,
    claim_all,
    get_one,
    make_failure,
    no_jitter,
    settle_one,
    sweep_all,
)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
async def store(postgres_url: str, clock: VirtualClock) -> AsyncIterator[PostgresStore]:
    async with PostgresStore(postgres_url, clock=clock) as opened:
        yield opened


async def set_counter(url: str, number: int) -> None:
    await execute(url, f"UPDATE windlass_gate SET holding = {number}")


async def test_a_gate_with_a_wrong_count_recovers_within_a_second(
    store: PostgresStore, postgres_url: str, clock: VirtualClock
) -> None:
    await set_limit(store, QUEUE, concurrency=2)
    rows = await enqueue_several(store, 6)
    first, second = await claim_all(store)
    await set_counter(postgres_url, 7)
    await settle_all(store, [first])
    assert await claim_all(store) == []
    clock.advance(1)
    await settle_all(store, [second])
    assert [row.id for row in await claim_all(store)] == [row.id for row in rows[2:4]]
    assert await inconsistencies(postgres_url) == {}


async def test_a_gate_that_counts_too_few_stops_within_a_second(
    store: PostgresStore, postgres_url: str, clock: VirtualClock
) -> None:
    await set_limit(store, QUEUE, concurrency=2)
    await enqueue_several(store, 2)
    await set_counter(postgres_url, 0)
    clock.advance(1)
    assert [row.state for row in await enqueue_several(store, 2)] == [State.CREATED] * 2
    assert await inconsistencies(postgres_url) == {}


@pytest.mark.slow
async def test_each_release_of_a_slot_is_counted_once(
    store: PostgresStore, postgres_url: str
) -> None:
    """The clock does not move, so no gate is recounted."""
    await set_limit(store, KEYS, concurrency=3)
    await set_limit(store, QUEUE, concurrency=4)
    rows = await enqueue_several(store, 5, limit_key="ada") + await enqueue_several(
        store, 5, limit_key="bob"
    )
    assert await inconsistencies(postgres_url) == {}
    one, two, three, four = await claim_all(store)
    await settle_all(store, [one])
    await settle_one(store, two, Released())
    await cancel_one(store, three.id)
    await settle_all(store, [await get_one(store, three.id)])
    assert await inconsistencies(postgres_url) == {}
    for row in rows:  # queued, at either gate, or running
        await cancel_one(store, row.id)
    assert await inconsistencies(postgres_url) == {}
    await settle_all(store, [four])
    assert await inconsistencies(postgres_url) == {}
    [wide] = await store.insights.gates([QUEUE])
    assert (wide.waiting, wide.in_use) == (0, 0)
    assert len(await claim_all(store)) == 0
    assert [row.state for row in await enqueue_several(store, 4)] == [State.QUEUED] * 4


async def test_a_claim_records_the_start(
    store: PostgresStore, postgres_url: str, clock: VirtualClock
) -> None:
    await set_limit(store, TASK, starts=2, period=10)
    await enqueue_several(store, 3)
    clock.advance(0.5)
    [row] = await claim_all(store, limit=1)
    starts = "SELECT at, cardinality(jobs) FROM windlass_start"
    assert [tuple(row_) for row_ in await execute(postgres_url, starts)] == [(row.started_at, 1)]


@pytest.mark.slow
async def test_a_start_is_counted_once(
    store: PostgresStore, postgres_url: str, clock: VirtualClock
) -> None:
    """Counts the starts of one claim together, while other jobs have not started."""
    await set_limit(store, TASK, starts=5, period=10)
    await enqueue_several(store, 4)
    assert len(await claim_all(store, limit=3)) == 3
    for _ in range(3):
        clock.advance(0.1)
        await enqueue_several(store, 1)
        assert await inconsistencies(postgres_url) == {}
    assert len(await claim_all(store)) == 2  # five starts in total


async def test_a_job_that_ends_before_its_start_frees_rate_capacity(
    store: PostgresStore, postgres_url: str
) -> None:
    await set_limit(store, TASK, starts=3, period=10)
    rows = await enqueue_several(store, 5)
    await claim_all(store, limit=1)
    await cancel_one(store, rows[1].id)
    assert await inconsistencies(postgres_url) == {}
    assert [row.id for row in await claim_all(store)] == [rows[2].id, rows[3].id]
    assert await inconsistencies(postgres_url) == {}


async def test_jobs_that_left_are_removed_from_permits_within_a_second(
    store: PostgresStore, postgres_url: str, clock: VirtualClock
) -> None:
    """Only jobs that hold a slot remain, however many were admitted."""
    await set_limit(store, TASK, concurrency=3)
    await enqueue_several(store, 9)
    for _ in range(2):
        for row in await claim_all(store, limit=2):
            await settle_all(store, [row])
    clock.advance(1)
    rows = await enqueue_several(store, 1)
    numbers = "SELECT DISTINCT unnest(jobs) FROM windlass_permit"
    assert len(await execute(postgres_url, numbers)) == 3
    for row in rows:
        await cancel_one(store, row.id)
    while claimed := await claim_all(store):
        await settle_all(store, claimed)
    assert await execute(postgres_url, "SELECT FROM windlass_permit") == []
    assert await inconsistencies(postgres_url) == {}


async def test_a_rate_that_is_set_later_counts_started_and_pending_jobs(
    store: PostgresStore, postgres_url: str, clock: VirtualClock
) -> None:
    await set_limit(store, TASK, concurrency=3)
    rows = await enqueue_several(store, 5)
    [running] = await claim_all(store, limit=1)
    clock.advance(5)
    await set_limit(store, TASK, starts=3, period=10)
    assert [row.id for row in await claim_all(store, limit=1)] == [rows[1].id]  # not checked yet
    await settle_all(store, [running])
    assert await claim_all(store) == [await get_one(store, rows[2].id)]
    clock.advance(5)
    await sweep_all(store)  # the first of three starts no longer counts
    assert [row.id for row in await claim_all(store)] == [rows[3].id]
    clock.advance(5)
    await sweep_all(store)
    assert [row.id for row in await claim_all(store)] == [rows[4].id]
    assert await inconsistencies(postgres_url) == {}


async def test_successes_in_a_call_with_a_failure_leave_their_gates_once(
    store: PostgresStore, postgres_url: str
) -> None:
    """The clock does not move, so no gate is recounted."""
    await set_limit(store, KEYS, concurrency=2)
    await set_limit(store, QUEUE, concurrency=4)
    rows = await enqueue_several(store, 6, limit_key="ada") + await enqueue_several(
        store, 6, limit_key="bob"
    )
    running = await claim_all(store)
    await execute(postgres_url, "DELETE FROM windlass_permit")  # a recount would find none
    failure = Failed(failure=make_failure(terminal=True))
    outcomes: list[Outcome] = [Succeeded(), failure, Succeeded()]
    transitions = [
        settle(row, outcome, random=no_jitter)
        for row, outcome in zip(running, outcomes, strict=False)
    ]
    assert all(answer.applied for answer in await store.apply(transitions))
    waiting = {row.id for row in rows} - {row.id for row in running}
    admitted = {row.id for row in await claim_all(store)}
    assert (len(admitted), admitted <= waiting) == (3, True)
    count = "SELECT holding FROM windlass_gate WHERE gate = 'queue:default'"
    assert [row[0] for row in await execute(postgres_url, count)] == [4]


async def test_after_a_crash_between_successes_and_the_rest_a_sweep_opens_the_gates(
    store: PostgresStore, postgres_url: str, clock: VirtualClock
) -> None:
    await set_limit(store, QUEUE, concurrency=1)
    rows = await enqueue_several(store, 3)
    [first] = await claim_all(store)
    connection: Any = await asyncpg.connect(postgres_url)
    try:
        transition = settle(first, Succeeded(), random=no_jitter)
        result = await successes.settle_successes(
            connection, [transition], clock.now(), 0, is_whole_call=False
        )
    finally:
        await connection.close()
    assert result == ({first.id}, [], [QUEUE])
    assert await claim_all(store) == []
    await sweep_all(store)
    assert [row.id for row in await claim_all(store)] == [rows[1].id]
    assert await inconsistencies(postgres_url) == {}


async def test_a_start_counts_even_if_its_claim_missed_the_rate(
    store: PostgresStore, postgres_url: str, clock: VirtualClock
) -> None:
    """The claim started before the rate was set, and waited for a lock."""
    await set_limit(store, TASK, concurrency=1)
    [first] = await enqueue_several(store, 1)
    async with open_transaction(postgres_url, LOCK, first.id) as blocker:
        claim = asyncio.create_task(claim_all(store))
        await wait_for_a_blocked_session(postgres_url)
        await set_limit(store, TASK, starts=3, period=3600)
        await enqueue_several(store, 1)
        await blocker.rollback()
        [row] = await claim
    await settle_one(store, row, Released())
    assert len(await claim_all(store)) == 2  # the second job, and the first one again
    clock.advance(1.5)
    await enqueue_several(store, 1)  # triggers a recount
    assert await claim_all(store) == []


async def test_after_a_change_from_rate_to_concurrency_starts_do_not_count(
    store: PostgresStore, postgres_url: str
) -> None:
    await set_limit(store, TASK, starts=2, period=3600)
    rows = await enqueue_several(store, 5)
    await settle_all(store, await claim_all(store))
    assert await claim_all(store) == []
    await set_limit(store, TASK, concurrency=2)
    await sweep_all(store)
    assert [row.id for row in await claim_all(store)] == [row.id for row in rows[2:4]]
    assert await inconsistencies(postgres_url) == {}


@pytest.mark.slow
async def test_a_job_admitted_while_a_limit_was_lifted_keeps_its_permit(
    store: PostgresStore, postgres_url: str
) -> None:
    await set_limit(store, TASK, concurrency=1)
    rows = await enqueue_several(store, 3)
    first = await claim_all(store)
    await store.delete_records(LIMIT, [TASK])
    await sweep_all(store)
    running = await claim_all(store)
    assert [row.id for row in running] == [row.id for row in rows[1:]]
    assert await inconsistencies(postgres_url) == {}
    for ended, holding in ((running, 1), (first, 0)):
        await settle_all(store, ended)
        assert [gate.in_use for gate in await store.insights.gates([TASK])] == [holding]
        assert await inconsistencies(postgres_url) == {}
    assert await execute(postgres_url, "SELECT FROM windlass_permit") == []
