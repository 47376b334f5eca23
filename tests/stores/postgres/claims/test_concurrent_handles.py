"""Many handles on the same jobs at once: no deadlock, nothing lost or done twice."""

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
from tests.stores.postgres.consistency_checks import contradictions
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
from windlass.core.query.job_query import Query
from windlass.core.versioned_record import PAUSED
from windlass.store import AttemptRecords
from windlass.stores.postgres import PostgresStore
from windlass.stores.postgres.connection import SETTINGS
from windlass.stores.postgres.queries import SQL
from windlass.stores.postgres.rows import columns
from windlass.stores.postgres.writes.claim_cursor import full_ranges
from windlass.stores.postgres.writes.lock_retry import LockRetry
from windlass.testing.factories import claim_all, log_record, make_failure, make_job, no_jitter

PATIENCE = 20.0
SESSIONS = 16
ROUNDS = 6
DEADLOCKS = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()"
WAITING = (
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
    "AND wait_event_type = 'Lock'"
)


class RandomClient:
    """One session that does whatever comes to mind, in batches that overlap with the others'."""

    def __init__(self, store: PostgresStore, seed: int, job_ids: list[UUID]) -> None:
        self.store = store
        self.random = Random(seed)
        self.job_ids = job_ids
        self.running: list[JobRow] = []
        self.claimed: list[tuple[UUID, int]] = []

    async def live(self) -> None:
        actions = [self.enqueue, self.claim, self.claim, self.settle, self.cancel, self.record]
        for _ in range(ROUNDS):
            self.random.shuffle(actions)
            for deed in actions:
                await deed()
            await self.sweep()

    def some(self, most: int) -> int:
        return self.random.randint(1, most)

    async def enqueue(self) -> None:
        jobs = [self.job() for _ in range(self.some(10))]
        answers = await self.store.enqueue(jobs)
        self.job_ids += [answer.row.id for answer in answers if answer.row is not None]

    def job(self) -> NewJob:
        key = f"key-{self.some(8)}"
        kinds: list[dict[str, object]] = [
            {},
            {"request_id": key},
            {"unique_key": key},
            {"unique_key": key, "debounce": True},
            {"unique_key": key, "request_id": f"key-{self.some(8)}"},
            {"delay": 0.001},
        ]
        policy = Policy(backoff=Fixed(seconds=0))
        return make_job(policy=policy, **self.random.choice(kinds))

    async def claim(self) -> None:
        token = uuid7()
        claim = Claim(token=token, worker="w", queues=[("default", self.some(15))])
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
            children = [self.job()] if isinstance(outcome, Succeeded) and self.some(4) == 1 else []
            transitions.append(settle(row, outcome, random=no_jitter, children=children))
        await self.store.apply(transitions)

    async def cancel(self) -> None:
        chosen = self.random.sample(self.job_ids, min(len(self.job_ids), self.some(6)))
        await self.store.cancel([CancelRequest(job_id=job_id) for job_id in chosen])

    async def record(self) -> None:
        entries = [
            AttemptRecords(row.lease, [log_record(n, "x")]) for n, row in enumerate(self.running, 1)
        ]
        self.random.shuffle(entries)
        await self.store.record(entries)
        await self.store.extend([row.lease for row in self.running], 30)

    async def sweep(self) -> None:
        rows = [*await self.store.due(20), *await self.store.expired(20)]
        self.random.shuffle(rows)
        await self.store.apply([sweep(row, random=no_jitter) for row in rows])


@pytest.mark.slow
async def test_overlapping_batches_of_many_sessions_never_deadlock(postgres_url: str) -> None:
    [[before]] = await execute(postgres_url, DEADLOCKS)
    job_ids: list[UUID] = []
    stores = [PostgresStore(postgres_url) for _ in range(SESSIONS)]
    clients = [RandomClient(store, seed, job_ids) for seed, store in enumerate(stores)]
    await asyncio.gather(*(client.live() for client in clients))
    claimed = [each for client in clients for each in client.claimed]
    assert len(claimed) == len(set(claimed)) > 100, "no fence was given twice"
    for client in clients:
        await client.settle()
        await client.store.close()

    assert await execute(postgres_url, DEADLOCKS) == [(before,)]
    assert await contradictions(postgres_url) == {}


async def test_a_job_is_claimed_or_canceled_never_both_and_never_neither(
    postgres_url: str,
) -> None:
    """The two lock the same rows in opposite order: the queue row first, or the job first."""
    async with PostgresStore(postgres_url) as one, PostgresStore(postgres_url) as other:
        for _ in range(30):
            jobs = [make_job() for _ in range(10)]
            await one.enqueue(jobs)
            requests = [CancelRequest(job_id=job.id) for job in reversed(jobs)]

            taken, _ = await asyncio.gather(claim_all(one), other.cancel(requests))

            running = {row.id for row in taken}
            rows = [row for row in await one.get([job.id for job in jobs]) if row is not None]
            assert {row.id for row in rows if row.state is State.RUNNING} == running
            assert all(row.cancel_requested for row in rows if row.id in running)
            assert {row.state for row in rows if row.id not in running} <= {State.CANCELED}
            await one.apply([settle(row, Succeeded(), random=no_jitter) for row in taken])
        assert not (await one.find(Query(states=frozenset({State.QUEUED})))).rows
    assert await contradictions(postgres_url) == {}


async def test_one_key_enqueued_from_many_sides_at_once_makes_one_job(postgres_url: str) -> None:
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
    assert len((await stores[0].find(Query())).rows) == 3
    for store in stores:
        await store.close()
    assert await contradictions(postgres_url) == {}


async def test_a_claim_repeated_while_it_is_under_way_hands_out_once(postgres_url: str) -> None:
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
    assert await contradictions(postgres_url) == {}


async def test_a_claim_repeated_before_its_first_call_commits_hands_out_once(
    postgres_url: str,
) -> None:
    """The repeat waits for the first call, and is answered with the same jobs."""
    claim = Claim(token=uuid7(), worker="w", queues=[("default", 3)])
    async with PostgresStore(postgres_url) as store:
        await store.enqueue([make_job() for _ in range(6)])
        async with claimed_uncommitted(postgres_url, claim) as taken:
            repeat = asyncio.create_task(store.claim(claim))
            await calls_wait(postgres_url, 1)
        answered = await repeat

        assert len(taken) == 3
        assert {row.id for row in answered} == taken
        assert len(await claim_all(store)) == 3
    assert await contradictions(postgres_url) == {}


async def test_a_cancel_during_a_claim_decides_about_the_claimed_job(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim is not committed when the cancel first reads the job."""
    claim = Claim(token=uuid7(), worker="w", queues=[("default", 1)])
    turned_away = watch_retries(monkeypatch)
    async with PostgresStore(postgres_url) as store:
        job = make_job()
        await store.enqueue([job])
        async with claimed_uncommitted(postgres_url, claim) as taken:
            cancel = asyncio.create_task(store.cancel([CancelRequest(job_id=job.id)]))
            await first_of(calls_wait(postgres_url, 1), turned_away.wait())
        [answer] = await cancel
        [row] = await store.get([job.id])

    assert taken == {job.id}
    assert row is not None
    assert (row.state, row.cancel_requested) == (State.RUNNING, True)
    assert (answer.status, answer.state) == (Status.APPLIED, State.RUNNING)
    assert await contradictions(postgres_url) == {}


@asynccontextmanager
async def claimed_uncommitted(url: str, claim: Claim) -> AsyncIterator[set[UUID]]:
    """A claim in a transaction that commits at the end of the block; gives what it took."""
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


async def calls_wait(url: str, number: int) -> None:
    """Return once so many calls wait for a lock."""
    async with asyncio.timeout(PATIENCE):
        while (await execute(url, WAITING))[0][0] < number:
            pass


def watch_retries(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """An event that is set when a call finds what it needs locked, and will try again."""
    turned_away = asyncio.Event()
    closes_within = LockRetry._closed_within

    async def try_later(self: LockRetry[Any, Any], nap: float) -> bool:
        turned_away.set()
        return await closes_within(self, nap)

    monkeypatch.setattr(LockRetry, "_closed_within", try_later)
    return turned_away


async def first_of(*waits: Coroutine[Any, Any, object]) -> None:
    """Return, or raise, when the first of them does; the others are canceled."""
    tasks = [asyncio.create_task(wait) for wait in waits]
    done, rest = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in rest:
        task.cancel()
    for task in done:
        task.result()


@asynccontextmanager
async def held_up(
    url: str, statement: str
) -> AsyncIterator[Callable[[], Coroutine[Any, Any, None]]]:
    """Hold what a statement locks; gives a way to wait until two calls stand before a lock."""
    connection: Any = await asyncpg.connect(url)
    try:
        await connection.execute(f"BEGIN; {statement}")
        yield partial(calls_wait, url, 2)
    finally:
        await connection.close()


async def test_batches_in_opposite_orders_wait_for_each_other(postgres_url: str) -> None:
    """Both would get to the middle, each from its end, if they locked jobs as they come."""
    async with PostgresStore(postgres_url) as one, PostgresStore(postgres_url) as other:
        ids = [row.id for row in await finished(one, 5)]
        [[before]] = await execute(postgres_url, DEADLOCKS)
        lock = f"SELECT FROM windlass_job WHERE id = '{ids[2]}' FOR UPDATE"
        async with held_up(postgres_url, lock) as two_wait:
            both = asyncio.gather(one.delete(ids), other.delete(ids[::-1]))
            await two_wait()
        answers = [{answer.status for answer in batch} for batch in await both]

    assert {Status.APPLIED} in answers
    assert {Status.MISSING} in answers
    assert await execute(postgres_url, DEADLOCKS) == [(before,)]


async def finished(store: PostgresStore, number: int) -> list[JobRow]:
    await store.enqueue([make_job() for _ in range(number)])
    rows = await claim_all(store)
    await store.apply([settle(row, Succeeded(), random=no_jitter) for row in rows])
    return rows


async def test_a_key_requested_twice_at_once_is_taken_once(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No insert can happen before both have read."""
    turned_away = watch_retries(monkeypatch)
    async with PostgresStore(postgres_url) as one, PostgresStore(postgres_url) as other:
        async with held_up(postgres_url, "LOCK TABLE windlass_job IN SHARE MODE") as two_wait:
            enqueues = (store.enqueue([make_job(unique_key="u")]) for store in (one, other))
            both = asyncio.gather(*enqueues)
            await first_of(two_wait(), turned_away.wait())
        [[first], [second]] = await both

        assert {first.status, second.status} == {EnqueueStatus.CREATED, EnqueueStatus.DUPLICATE}
        assert len(await claim_all(one)) == 1


async def test_a_claim_skips_rows_that_another_is_taking(postgres_url: str) -> None:
    """No call waits for a slow claim, or one whose machine has vanished."""
    async with PostgresStore(postgres_url) as store:
        jobs = [make_job() for _ in range(3)]
        await store.enqueue(jobs)
        slow: Any = await asyncpg.connect(postgres_url, server_settings=SETTINGS)
        try:
            await slow.execute("BEGIN")
            token, parts = uuid7(), columns(full_ranges(["default"]))
            claim = (None, token, "slow", None, 30_000_000, ["default"], [1], PAUSED, *parts)
            assert len(await slow.fetch(SQL.claim, *claim)) == 1

            async with asyncio.timeout(PATIENCE):
                taken = await claim_all(store)
        finally:
            await slow.close()  # which takes its claim back

        assert [row.id for row in taken] == [job.id for job in jobs[1:]]
        assert [row.id for row in await claim_all(store)] == [jobs[0].id]
