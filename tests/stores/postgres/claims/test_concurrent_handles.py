"""Concurrent calls of many handles on the same jobs: no deadlock, no job lost or run twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from random import Random
from typing import Any
from uuid import UUID

import asyncpg
import pytest
from tests.stores.postgres.consistency_checks import inconsistencies
from tests.stores.postgres.server import execute

from windlass.core.decisions.enqueue import EnqueueStatus
from windlass.core.decisions.maintenance import sweep
from windlass.core.decisions.outcome import Failed, Outcome, Released, Snoozed, Succeeded, settle
from windlass.core.decisions.transition import CancelRequest, Status
from windlass.core.ids import uuid7
from windlass.core.job.lease import Claim
from windlass.core.job.new_job import NewJob
from windlass.core.job.retry_policy import Fixed, Policy
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.core.query.job_query import JobQuery
from windlass.core.versioned_record import PAUSED
from windlass.store import AttemptRecords
from windlass.stores.postgres import PostgresStore
from windlass.stores.postgres.connection import SETTINGS
from windlass.stores.postgres.queries import SQL
from windlass.stores.postgres.rows import columns
from windlass.stores.postgres.writes.claim_cursor import full_ranges
from windlass.stores.postgres.writes.locked_job_retry import LockedJobRetry
from windlass.testing.factories import (
    claim_all,
    expired_jobs,
    log_record,
    make_failure,
    make_job,
    no_jitter,
)

WAIT_TIMEOUT = 20.0
SESSIONS = 16
ROUNDS = 6
DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
BLOCKED_CALLS = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
    "AND wait_event_type = 'Lock'"
)


class RandomClient:
    """Session of random calls, in batches that overlap with those of other sessions."""

    def __init__(self, store: PostgresStore, seed: int, job_ids: list[UUID]) -> None:
        self.store = store
        self.random = Random(seed)
        self.job_ids = job_ids
        self.running: list[JobRow] = []
        self.claimed: list[tuple[UUID, int]] = []

    async def run(self) -> None:
        actions = [self.enqueue, self.claim, self.claim, self.settle, self.cancel, self.record]
        for _ in range(ROUNDS):
            self.random.shuffle(actions)
            for action in actions:
                await action()
            await self.sweep()

    def random_count(self, most: int) -> int:
        return self.random.randint(1, most)

    async def enqueue(self) -> None:
        jobs = [self.job() for _ in range(self.random_count(10))]
        answers = await self.store.enqueue(jobs)
        self.job_ids += [answer.row.id for answer in answers if answer.row is not None]

    def job(self) -> NewJob:
        key = f"key-{self.random_count(8)}"
        kinds: list[dict[str, object]] = [
            {},
            {"request_id": key},
            {"unique_key": key},
            {"unique_key": key, "debounce": True},
            {"unique_key": key, "request_id": f"key-{self.random_count(8)}"},
            {"delay": 0.001},
        ]
        policy = Policy(backoff=Fixed(seconds=0))
        return make_job(policy=policy, **self.random.choice(kinds))

    async def claim(self) -> None:
        token = uuid7()
        claim = Claim(token=token, worker="w", queues=[("default", self.random_count(15))])
        rows = await self.store.claim(claim)
        self.claimed += [(row.id, row.fence) for row in rows]
        self.running += rows

    async def settle(self) -> None:
        ending, self.running = self.running, []
        self.random.shuffle(ending)
        outcomes: list[Outcome] = [
            Succeeded(),
            Succeeded(result=b"1"),
            Failed(failure=make_failure()),
            Released(),
            Snoozed(delay=0),
        ]
        transitions = []
        for row in ending:
            outcome = self.random.choice(outcomes)
            children = (
                [self.job()] if isinstance(outcome, Succeeded) and self.random_count(4) == 1 else []
            )
            transitions.append(settle(row, outcome, random=no_jitter, children=children))
        await self.store.apply(transitions)

    async def cancel(self) -> None:
        chosen = self.random.sample(self.job_ids, min(len(self.job_ids), self.random_count(6)))
        await self.store.apply([CancelRequest(job_id=job_id) for job_id in chosen])

    async def record(self) -> None:
        entries = [
            AttemptRecords(row.lease, [log_record(n, "x")]) for n, row in enumerate(self.running, 1)
        ]
        self.random.shuffle(entries)
        await self.store.record(entries)
        await self.store.extend([row.lease for row in self.running], 30)

    async def sweep(self) -> None:
        rows = [*await self.store.due(20), *await expired_jobs(self.store, 20)]
        self.random.shuffle(rows)
        await self.store.apply([sweep(row, random=no_jitter) for row in rows])


@pytest.mark.slow
async def test_overlapping_batches_of_many_sessions_never_deadlock(postgres_url: str) -> None:
    [[before]] = await execute(postgres_url, DEADLOCKS)
    job_ids: list[UUID] = []
    stores = [PostgresStore(postgres_url) for _ in range(SESSIONS)]
    clients = [RandomClient(store, seed, job_ids) for seed, store in enumerate(stores)]
    await asyncio.gather(*(client.run() for client in clients))
    claimed = [attempt for client in clients for attempt in client.claimed]
    assert len(claimed) == len(set(claimed)) > 100, "every fence is unique"
    for client in clients:
        await client.settle()
        await client.store.close()

    assert await execute(postgres_url, DEADLOCKS) == [(before,)]
    assert await inconsistencies(postgres_url) == {}


async def test_a_job_is_either_claimed_or_canceled(
    postgres_url: str,
) -> None:
    """A claim locks the queue row first, a cancel the job row first."""
    async with PostgresStore(postgres_url) as store, PostgresStore(postgres_url) as other:
        for _ in range(30):
            jobs = [make_job() for _ in range(10)]
            await store.enqueue(jobs)
            requests = [CancelRequest(job_id=job.id) for job in reversed(jobs)]

            taken, _ = await asyncio.gather(claim_all(store), other.apply(requests))

            running = {row.id for row in taken}
            rows = [row for row in await store.get([job.id for job in jobs]) if row is not None]
            assert {row.id for row in rows if row.state is State.RUNNING} == running
            assert all(row.cancel_requested for row in rows if row.id in running)
            assert {row.state for row in rows if row.id not in running} <= {State.CANCELED}
            await store.apply([settle(row, Succeeded(), random=no_jitter) for row in taken])
        assert not (await store.find(JobQuery(states=frozenset({State.QUEUED})))).rows
    assert await inconsistencies(postgres_url) == {}


async def test_concurrent_enqueues_with_one_key_create_one_job(postgres_url: str) -> None:
    stores = [PostgresStore(postgres_url) for _ in range(8)]
    jobs = [
        [make_job(unique_key="u"), make_job(request_id="r"), make_job(id=UUID(int=7 << 76 | 2))]
        for _ in stores
    ]
    for batch in jobs[::2]:
        batch.reverse()

    answers = await asyncio.gather(
        *(store.enqueue(batch) for store, batch in zip(stores, jobs, strict=True))
    )

    stored = {answer.row.id for batch in answers for answer in batch if answer.row is not None}
    assert all(answer.accepted for batch in answers for answer in batch)
    assert len(stored) == 3
    assert len((await stores[0].find(JobQuery())).rows) == 3
    for store in stores:
        await store.close()
    assert await inconsistencies(postgres_url) == {}


async def test_a_claim_repeated_while_it_runs_returns_each_job_once(postgres_url: str) -> None:
    stores = [PostgresStore(postgres_url) for _ in range(6)]
    await asyncio.gather(*(store.ping() for store in stores))
    for _ in range(20):
        await stores[0].enqueue([make_job() for _ in range(20)])
        claim = Claim(token=uuid7(), worker="w", queues=[("default", 3)])

        answers = await asyncio.gather(*(store.claim(claim) for store in stores))

        assert {tuple(row.id for row in rows) for rows in answers} == {
            tuple(row.id for row in answers[0])
        }
        assert len(answers[0]) == 3
    for store in stores:
        await store.close()
    assert await inconsistencies(postgres_url) == {}


async def test_a_claim_repeated_before_its_commit_returns_each_job_once(
    postgres_url: str,
) -> None:
    """The repeat waits for the first call, and returns the same jobs."""
    claim = Claim(token=uuid7(), worker="w", queues=[("default", 3)])
    async with PostgresStore(postgres_url) as store:
        await store.enqueue([make_job() for _ in range(6)])
        async with uncommitted_claim(postgres_url, claim) as taken:
            repeat = asyncio.create_task(store.claim(claim))
            await wait_for_blocked_calls(postgres_url, 1)
        repeated = await repeat

        assert len(taken) == 3
        assert {row.id for row in repeated} == taken
        assert len(await claim_all(store)) == 3
    assert await inconsistencies(postgres_url) == {}


async def test_a_cancel_during_a_claim_applies_to_the_claimed_job(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim is not committed when the cancel first reads the job."""
    claim = Claim(token=uuid7(), worker="w", queues=[("default", 1)])
    retried = watch_retries(monkeypatch)
    async with PostgresStore(postgres_url) as store:
        job = make_job()
        await store.enqueue([job])
        async with uncommitted_claim(postgres_url, claim) as taken:
            cancel = asyncio.create_task(store.apply([CancelRequest(job_id=job.id)]))
            await wait_for_first(wait_for_blocked_calls(postgres_url, 1), retried.wait())
        [answer] = await cancel
        [row] = await store.get([job.id])

    assert taken == {job.id}
    assert row is not None
    assert (row.state, row.cancel_requested) == (State.RUNNING, True)
    assert (answer.status, answer.state) == (Status.APPLIED, State.RUNNING)
    assert await inconsistencies(postgres_url) == {}


@asynccontextmanager
async def uncommitted_claim(url: str, claim: Claim) -> AsyncIterator[set[UUID]]:
    """Claim in a transaction that commits at the end of the block; yield the claimed ids."""
    connection: Any = await asyncpg.connect(url, server_settings=SETTINGS)
    queues, limits = zip(*claim.queues, strict=True)
    parts = columns(full_ranges(queues))
    lease = 30_000_000
    try:
        async with connection.transaction():
            found = await connection.fetch(
                SQL.claim, None, claim.token, claim.worker, None, lease, queues, limits, PAUSED,
                *parts,
            )  # fmt: skip
            yield {UUID(str(record["id"])) for record in found}
    finally:
        await connection.close()


async def wait_for_blocked_calls(url: str, number: int) -> None:
    """Return when this number of calls wait for a lock."""
    async with asyncio.timeout(WAIT_TIMEOUT):
        while (await execute(url, BLOCKED_CALLS))[0][0] < number:
            pass


def watch_retries(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Return an event that is set when a call retries because of a lock."""
    retried = asyncio.Event()
    closes_within = LockedJobRetry._closed_within

    async def record_retry(self: LockedJobRetry[Any, Any], delay: float) -> bool:
        retried.set()
        return await closes_within(self, delay)

    monkeypatch.setattr(LockedJobRetry, "_closed_within", record_retry)
    return retried


async def wait_for_first(*waits: Coroutine[Any, Any, object]) -> None:
    """Wait until the first of these returns or raises; cancel the others."""
    tasks = [asyncio.create_task(wait) for wait in waits]
    done, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in rest:
        task.cancel()
    for task in done:
        task.result()


@asynccontextmanager
async def hold_locks(
    url: str, statement: str
) -> AsyncIterator[Callable[[], Coroutine[Any, Any, None]]]:
    """Hold the locks of a statement; yield a function that waits until two calls are blocked."""
    connection: Any = await asyncpg.connect(url)
    try:
        await connection.execute(f"BEGIN; {statement}")
        yield partial(wait_for_blocked_calls, url, 2)
    finally:
        await connection.close()


async def test_batches_in_opposite_orders_wait_for_each_other(postgres_url: str) -> None:
    """If each call locked jobs in its own order, both would block at the job in the middle."""
    async with PostgresStore(postgres_url) as store, PostgresStore(postgres_url) as other:
        ids = [row.id for row in await finish_jobs(store, 5)]
        [[before]] = await execute(postgres_url, DEADLOCKS)
        lock = f"SELECT FROM windlass_job WHERE id = '{ids[2]}' FOR UPDATE"
        async with hold_locks(postgres_url, lock) as both_blocked:
            both = asyncio.gather(store.delete(ids), other.delete(ids[::-1]))
            await both_blocked()
        answers = [{answer.status for answer in batch} for batch in await both]

    assert {Status.APPLIED} in answers
    assert {Status.MISSING} in answers
    assert await execute(postgres_url, DEADLOCKS) == [(before,)]


async def finish_jobs(store: PostgresStore, number: int) -> list[JobRow]:
    await store.enqueue([make_job() for _ in range(number)])
    rows = await claim_all(store)
    await store.apply([settle(row, Succeeded(), random=no_jitter) for row in rows])
    return rows


async def test_a_key_requested_by_two_calls_at_once_is_stored_once(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table lock blocks inserts until both calls have read."""
    retried = watch_retries(monkeypatch)
    async with PostgresStore(postgres_url) as store, PostgresStore(postgres_url) as other:
        async with hold_locks(
            postgres_url, "LOCK TABLE windlass_job IN SHARE MODE"
        ) as both_blocked:
            enqueues = (handle.enqueue([make_job(unique_key="u")]) for handle in (store, other))
            both = asyncio.gather(*enqueues)
            await wait_for_first(both_blocked(), retried.wait())
        [[first], [second]] = await both

        assert {first.status, second.status} == {EnqueueStatus.CREATED, EnqueueStatus.DUPLICATE}
        assert len(await claim_all(store)) == 1


async def test_a_claim_skips_rows_locked_by_another_claim(postgres_url: str) -> None:
    """No call waits for a slow claim, or for one of a machine that has vanished."""
    async with PostgresStore(postgres_url) as store:
        jobs = [make_job() for _ in range(3)]
        await store.enqueue(jobs)
        slow: Any = await asyncpg.connect(postgres_url, server_settings=SETTINGS)
        try:
            await slow.execute("BEGIN")
            token, parts = uuid7(), columns(full_ranges(["default"]))
            claim = (None, token, "slow", None, 30_000_000, ["default"], [1], PAUSED, *parts)
            assert len(await slow.fetch(SQL.claim, *claim)) == 1

            async with asyncio.timeout(WAIT_TIMEOUT):
                taken = await claim_all(store)
        finally:
            await slow.close()  # rolls back its claim

        assert [row.id for row in taken] == [job.id for job in jobs[1:]]
        assert [row.id for row in await claim_all(store)] == [jobs[0].id]
