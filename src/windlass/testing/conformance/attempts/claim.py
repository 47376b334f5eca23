"""Claim: a job has one worker at a time, and a lost response loses no job."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from uuid import UUID

from windlass.core.clock import after
from windlass.core.decisions.outcome import Released, Succeeded
from windlass.core.ids import uuid7
from windlass.core.job.lease import DEFAULT_LEASE, Claim
from windlass.core.job.row import JobRow
from windlass.core.job.state import State
from windlass.store import Store
from windlass.testing.clock import VirtualClock
from windlass.testing.conformance.fixtures import OpenStore
from windlass.testing.factories import (
    claim_all,
    claim_one,
    enqueue_one,
    get_one,
    make_job,
    set_paused,
    settle_one,
    start_one,
)

TOO_MANY = 1_000


def claim_of(*queues: tuple[str, int], worker: str = "worker-1") -> Claim:
    return Claim(token=uuid7(), worker=worker, queues=queues)


async def drain(store: Store, limit: int) -> list[JobRow]:
    """Claim until the queue is empty, or fail after too many claims."""
    taken: list[JobRow] = []
    while (rows := await claim_all(store, limit=limit)) and len(taken) < TOO_MANY:
        taken += rows
    return taken


def ids(rows: list[JobRow]) -> list[UUID]:
    return [row.id for row in rows]


class TestClaim:
    async def test_a_claim_starts_an_attempt(self, store: Store, clock: VirtualClock) -> None:
        job = await enqueue_one(store)
        clock.advance(3)
        claim = claim_of(("default", 1), worker="ada")
        [row] = await store.claim(claim)
        assert row == await get_one(store, job.id)
        assert (row.state, row.attempt, row.fence) == (State.RUNNING, 1, 1)
        assert (row.token, row.worker) == (claim.token, "ada")
        assert row.started_at == row.first_started_at == clock.now()
        assert row.lease_until == after(clock.now(), DEFAULT_LEASE)
        assert row.queued_at == job.queued_at

    async def test_a_claim_of_an_empty_queue_returns_nothing(self, store: Store) -> None:
        assert await claim_all(store, "default", "never-seen") == []

    async def test_a_claim_without_queues_returns_nothing(self, store: Store) -> None:
        await enqueue_one(store)
        assert await store.claim(claim_of()) == []

    async def test_a_claim_with_limit_zero_returns_nothing(self, store: Store) -> None:
        await enqueue_one(store)
        assert await store.claim(claim_of(("default", 0))) == []
        assert len(await claim_all(store)) == 1

    async def test_a_repeated_claim_without_queues_returns_nothing(self, store: Store) -> None:
        """An empty claim returns nothing, even if its token holds jobs."""
        await enqueue_one(store)
        claim = claim_of(("default", 1))
        assert len(await store.claim(claim)) == 1
        assert await store.claim(replace(claim, queues=[("default", 0)])) == []

    async def test_only_queued_jobs_are_claimed(self, store: Store) -> None:
        await enqueue_one(store, hold=True)
        await enqueue_one(store, delay=60.0)
        await settle_one(store, await start_one(store), Succeeded())
        assert await claim_all(store) == []

    # -- no job twice

    async def test_a_running_job_is_not_claimed_again(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await start_one(store)
        assert await claim_all(store) == []
        clock.advance(DEFAULT_LEASE + 1)
        assert await claim_all(store) == [], "only a rescue takes a lease away"

    async def test_a_queue_named_twice_in_one_claim_returns_no_job_twice(
        self, store: Store
    ) -> None:
        put = [await enqueue_one(store) for _ in range(3)]
        rows = await claim_all(store, "default", "default", limit=2)
        assert sorted(ids(rows)) == sorted(job.id for job in put)

    async def test_concurrent_claims_never_return_a_job_twice(
        self, store: Store, open_store: OpenStore
    ) -> None:
        put = [make_job() for _ in range(200)]
        await store.enqueue(put)
        handles = [store, *(store.twin() for _ in range(4)), await open_store()]
        calls = await asyncio.gather(
            *(claim_all(handle, limit=7) for _ in range(10) for handle in handles)
        )
        for handle in handles[1:]:
            await handle.close()
        taken = Counter(row.id for rows in calls for row in rows)
        assert set(taken.values()) == {1}
        assert set(taken) == {job.id for job in put}

    async def test_claims_from_many_threads_never_return_a_job_twice(self, store: Store) -> None:
        put = [make_job() for _ in range(200)]
        await store.enqueue(put)

        def work() -> list[JobRow]:
            async def one_worker() -> list[JobRow]:
                async with store.twin() as own_handle:
                    return await drain(own_handle, limit=3)

            return asyncio.run(one_worker())

        calls = await asyncio.gather(*(asyncio.to_thread(work) for _ in range(4)))
        taken = Counter(row.id for rows in calls for row in rows)
        assert set(taken.values()) == {1}
        assert set(taken) == {job.id for job in put}

    async def test_jobs_enqueued_during_claims_are_each_claimed_once(self, store: Store) -> None:
        put = [make_job() for _ in range(100)]
        async with store.twin() as producer:
            _, calls = await asyncio.gather(
                asyncio.gather(*(producer.enqueue(put[n : n + 10]) for n in range(0, 100, 10))),
                asyncio.gather(*(claim_all(store, limit=10) for _ in range(10))),
            )
        early = [row.id for rows in calls for row in rows]
        late = ids(await drain(store, limit=10))
        assert sorted([*early, *late]) == sorted(job.id for job in put)

    # -- limits and queues

    async def test_a_claim_takes_no_more_than_its_limit(self, store: Store) -> None:
        await store.enqueue([make_job() for _ in range(5)])
        assert len(await claim_all(store, limit=3)) == 3
        assert len(await claim_all(store, limit=3)) == 2

    async def test_a_claim_is_for_the_named_queues_only(self, store: Store) -> None:
        mail = await enqueue_one(store, queue="mail")
        await enqueue_one(store, queue="video")
        assert ids(await claim_all(store, "mail", "sound")) == [mail.id]

    async def test_each_queue_has_its_own_limit(self, store: Store) -> None:
        await store.enqueue([make_job(queue=queue) for queue in ("a", "b", "c") for _ in range(5)])
        rows = await store.claim(claim_of(("a", 2), ("b", 0), ("c", 4)))
        assert Counter(row.queue for row in rows) == {"a": 2, "c": 4}

    async def test_claimed_rows_follow_the_order_of_the_queues_in_the_call(
        self, store: Store
    ) -> None:
        await store.enqueue([make_job(queue=queue) for queue in ("a", "b", "c")])
        rows = await claim_all(store, "c", "a", "b")
        assert [row.queue for row in rows] == ["c", "a", "b"]

    # -- fences and tokens

    async def test_the_fence_grows_by_one_with_every_claim(self, store: Store) -> None:
        row = await start_one(store)
        for fence in (2, 3, 4):
            await settle_one(store, row, Released())
            again = await claim_one(store, worker=f"worker-{fence}")
            assert (again.id, again.fence, again.attempt) == (row.id, fence, fence)
            assert again.token != row.token
            row = again

    async def test_a_second_attempt_remembers_the_first_start(
        self, store: Store, clock: VirtualClock
    ) -> None:
        first = await start_one(store)
        clock.advance(5)
        await settle_one(store, first, Released())
        clock.advance(5)
        second = await claim_one(store)
        assert second.first_started_at == first.started_at
        assert second.started_at == clock.now()

    async def test_a_repeated_claim_with_the_same_token_returns_the_same_jobs_in_order(
        self, store: Store
    ) -> None:
        await store.enqueue(
            [make_job(queue=queue, priority=n % 3) for n in range(9) for queue in ("a", "b")]
        )
        claim = claim_of(("b", 5), ("a", 3))
        first = await store.claim(claim)
        assert len(first) == 8
        assert await store.claim(claim) == first
        assert len(await claim_all(store, "a", "b")) == 10, "and takes nothing new"

    async def test_a_repeated_claim_through_another_handle_returns_the_same_jobs(
        self, store: Store
    ) -> None:
        await store.enqueue([make_job() for _ in range(3)])
        claim = claim_of(("default", 2))
        first = await store.claim(claim)
        async with store.twin() as other:
            assert await other.claim(claim) == first

    async def test_a_repeated_claim_omits_settled_jobs(self, store: Store) -> None:
        await store.enqueue([make_job() for _ in range(3)])
        claim = claim_of(("default", 3))
        rows = await store.claim(claim)
        await settle_one(store, rows[1], Succeeded())
        assert await store.claim(claim) == [rows[0], rows[2]]

    async def test_a_repeated_claim_for_another_queue_returns_the_first_jobs(
        self, store: Store
    ) -> None:
        """A token belongs to one claim: a repeat with other queues claims nothing more."""
        await store.enqueue([make_job(queue=queue) for queue in ("a", "b") for _ in range(3)])
        claim = claim_of(("a", 2))
        first = await store.claim(claim)
        assert len(first) == 2
        assert await store.claim(replace(claim, queues=[("b", 3)])) == first
        assert await store.claim(replace(claim, queues=[("b", 3), ("a", 3)])) == first
        assert len(await claim_all(store, "a", "b")) == 4, "and takes nothing"

    async def test_concurrent_repeats_of_a_claim_claim_once(self, store: Store) -> None:
        await store.enqueue([make_job() for _ in range(6)])
        claim = claim_of(("default", 3))
        async with store.twin() as other:
            one, two = await asyncio.gather(store.claim(claim), other.claim(claim))
        assert one == two
        assert len(await claim_all(store)) == 3

    # -- jobs that cannot be claimed

    async def test_an_expired_job_is_never_claimed(self, store: Store, clock: VirtualClock) -> None:
        expiring = await enqueue_one(store, expires_in=10.0)
        permanent = await enqueue_one(store)
        clock.advance(10)
        assert ids(await claim_all(store)) == [permanent.id]
        assert (await get_one(store, expiring.id)).state is State.QUEUED

    async def test_a_job_can_be_claimed_until_it_expires(
        self, store: Store, clock: VirtualClock
    ) -> None:
        expiring = await enqueue_one(store, expires_in=10.0)
        clock.advance(9.999)
        assert ids(await claim_all(store)) == [expiring.id]

    async def test_expired_jobs_do_not_count_toward_the_claim_limit(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await store.enqueue([make_job(expires_in=10.0, priority=5) for _ in range(20)])
        permanent = [make_job() for _ in range(3)]
        await store.enqueue(permanent)
        clock.advance(10)
        assert set(ids(await claim_all(store, limit=3))) == {job.id for job in permanent}

    async def test_a_job_that_started_in_time_can_be_claimed_again_after_its_expiry(
        self, store: Store, clock: VirtualClock
    ) -> None:
        row = await start_one(store, expires_in=10.0)
        clock.advance(11)
        await settle_one(store, row, Released())
        assert ids(await claim_all(store)) == [row.id]

    async def test_no_job_of_a_paused_queue_is_claimed(self, store: Store) -> None:
        await enqueue_one(store, queue="mail")
        video = await enqueue_one(store, queue="video")
        await set_paused(store, ["mail"], paused=True)
        assert ids(await claim_all(store, "mail", "video")) == [video.id]

    async def test_a_resumed_queue_can_be_claimed(self, store: Store) -> None:
        await set_paused(store, ["default"], paused=True)
        put = [await enqueue_one(store) for _ in range(3)]
        assert await claim_all(store) == []
        await set_paused(store, ["default"], paused=False)
        assert set(ids(await claim_all(store))) == {job.id for job in put}

    async def test_a_queue_paused_twice_is_resumed_by_one_call(self, store: Store) -> None:
        await enqueue_one(store)
        await set_paused(store, ["default"], paused=True)
        await set_paused(store, ["default"], paused=True)
        await set_paused(store, ["default"], paused=False)
        await set_paused(store, ["default"], paused=False)
        assert len(await claim_all(store)) == 1

    async def test_a_pause_does_not_affect_running_jobs(self, store: Store) -> None:
        await enqueue_one(store)
        claim = claim_of(("default", 1))
        [row] = await store.claim(claim)
        await set_paused(store, ["default"], paused=True)
        assert await store.claim(claim) == [row], "a repeat returns the same rows"
        [extended] = await store.extend([row.lease], 60.0)
        assert not extended.stale
        assert (await settle_one(store, row, Succeeded())).applied

    # -- lease durations

    async def test_the_lease_comes_from_the_claim_then_the_job_then_the_default(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await enqueue_one(store, queue="plain")
        await enqueue_one(store, queue="own", lease=90.0)
        await enqueue_one(store, queue="both", lease=90.0)
        plain, own = await claim_all(store, "plain", "own")
        both = await claim_one(store, "both", lease=7.5)
        assert plain.lease_until == after(clock.now(), DEFAULT_LEASE)
        assert own.lease_until == after(clock.now(), 90)
        assert both.lease_until == after(clock.now(), 7.5)
