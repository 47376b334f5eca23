"""Lease rows, one per claim call: repeats do not overwrite them, and they cause no deadlock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar
from uuid import UUID

import asyncpg
import pytest
from tests.stores.postgres.consistency_checks import inconsistencies
from tests.stores.postgres.server import execute
from tests.worker.event_waits import eventually

from windlass.core.decisions.outcome import Failed, Released, Succeeded, settle
from windlass.core.ids import uuid7
from windlass.core.job.lease import Claim
from windlass.stores.postgres import PostgresStore, rows
from windlass.stores.postgres.connection import SETTINGS
from windlass.stores.postgres.queries import SQL
from windlass.stores.postgres.writes.claim_cursor import full_ranges
from windlass.testing.factories import make_failure, make_job, no_jitter

T = TypeVar("T")
DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"


async def test_two_late_repeats_of_one_claim_keep_each_others_jobs(
    postgres_url: str,
) -> None:
    """Both repeats see the lease row of a released job; only the first one may replace it."""
    claim = Claim(token=uuid7(), worker="w", queues=[("default", 1)])
    parts = rows.columns(full_ranges(["default"]))
    values = (None, claim.token, "w", None, 30_000_000, ["default"], [1], "paused", *parts)
    async with PostgresStore(postgres_url) as store:
        await store.enqueue([make_job()])
        [row] = await store.claim(claim)
        await store.apply([settle(row, Released(), random=no_jitter)])
        await store.enqueue([make_job()])
        first, second = [
            await asyncpg.connect(postgres_url, server_settings=SETTINGS) for _ in range(2)
        ]
        async with first.transaction():
            assert len(await first.fetch(SQL.claim, *values)) == 1
            repeat = asyncio.create_task(second.fetch(SQL.claim, *values))
            await wait_for_lock_of(postgres_url, second.get_server_pid())
        with pytest.raises(asyncpg.UniqueViolationError):  # the store retries it
            await repeat
        await first.close()
        await second.close()
    assert await inconsistencies(postgres_url) == {}


async def test_parents_of_two_claims_and_a_sweep_of_both_never_deadlock(postgres_url: str) -> None:
    [[before]] = await execute(postgres_url, DEADLOCKS)
    worker, sweeper = PostgresStore(postgres_url), PostgresStore(postgres_url)
    for round_ in range(15):
        queue = f"queue-{round_}"
        await worker.enqueue([make_job(queue=queue) for _ in range(4)])
        held = []
        for place in (1, 2):
            token = UUID(int=(place << 120) + round_)
            claim = Claim(token=token, worker="w", queues=[(queue, 2)])
            held.append(await worker.claim(claim))
        parents = [
            settle(jobs[0], Succeeded(), random=no_jitter, children=[make_job(queue="child")])
            for jobs in reversed(held)
        ]
        failed = Failed(failure=make_failure())
        lost = [settle(jobs[1], failed, random=no_jitter) for jobs in held]

        answers = await asyncio.gather(
            worker.apply(parents), _after_delay(round_, partial(sweeper.apply, lost))
        )

        assert all(answer.applied for batch in answers for answer in batch)
    await worker.close()
    await sweeper.close()
    assert await execute(postgres_url, DEADLOCKS) == [(before,)]


async def wait_for_lock_of(url: str, pid: int) -> None:
    statement = f"SELECT FROM pg_stat_activity WHERE pid = {pid} AND wait_event_type = 'Lock'"

    async def is_blocked() -> bool:
        return bool(await execute(url, statement))

    await eventually(is_blocked)


async def _after_delay(round_: int, call: Callable[[], Awaitable[T]]) -> T:
    await asyncio.sleep(round_ / 1000)
    return await call()
