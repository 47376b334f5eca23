"""Maintenance: one read returns expired leases and due jobs, each with its own limit."""

from __future__ import annotations

from windlass.core.ids import uuid7
from windlass.core.job.state import State
from windlass.store import Store
from windlass.testing.clock import VirtualClock
from windlass.testing.factories import claim_all, enqueue_one, expired_jobs, make_job, sweep_all

LEASE = 30.0


async def start_leases(store: Store, number: int) -> list[str]:
    """Start jobs whose leases expire one after the other."""
    await store.enqueue([make_job(queue="running") for _ in range(number)])
    rows = []
    for index in range(number):
        rows += await claim_all(store, "running", limit=1, lease=LEASE + index)
    return [str(row.id) for row in rows]


async def delay_jobs(store: Store, number: int) -> list[str]:
    """Enqueue jobs that are due one after the other."""
    jobs = [make_job(queue="later", delay=1.0 + index) for index in range(number)]
    await store.enqueue(jobs)
    return [str(job.id) for job in jobs]


class TestMaintenance:
    async def test_nothing_is_due_in_an_idle_store(self, store: Store) -> None:
        await enqueue_one(store)
        await enqueue_one(store, hold=True)
        assert await store.due(10) == []

    async def test_expired_leases_come_before_due_jobs_each_earliest_first(
        self, store: Store, clock: VirtualClock
    ) -> None:
        due = await delay_jobs(store, 3)
        expired = await start_leases(store, 3)
        clock.advance(100)
        found = await store.due(10)
        assert [str(row.id) for row in found] == [*expired, *due]
        assert [row.state for row in found] == [State.RUNNING] * 3 + [State.CREATED] * 3

    async def test_the_limit_is_for_each_kind(self, store: Store, clock: VirtualClock) -> None:
        due, expired = await delay_jobs(store, 5), await start_leases(store, 4)
        clock.advance(100)
        found = [str(row.id) for row in await store.due(2)]
        assert found == [*expired[:2], *due[:2]]

    async def test_a_flood_of_due_jobs_does_not_delay_a_rescue(
        self, store: Store, clock: VirtualClock
    ) -> None:
        [expired] = await start_leases(store, 1)
        await delay_jobs(store, 30)
        clock.advance(100)
        assert [str(row.id) for row in await expired_jobs(store, 3)] == [expired]
        await sweep_all(store, limit=3)
        assert str((await claim_all(store, "running"))[0].id) == expired

    async def test_a_flood_of_expired_leases_does_not_delay_a_due_job(
        self, store: Store, clock: VirtualClock
    ) -> None:
        await start_leases(store, 30)
        [due] = await delay_jobs(store, 1)
        clock.advance(100)
        await sweep_all(store, limit=3)
        assert [str(row.id) for row in await claim_all(store, "later")] == [due]

    async def test_a_full_sweep_moves_jobs_of_both_kinds(
        self, store: Store, clock: VirtualClock
    ) -> None:
        queue = f"expiring-{uuid7()}"
        await store.enqueue([make_job(queue=queue, expires_in=5.0) for _ in range(2)])
        due, expired = await delay_jobs(store, 2), await start_leases(store, 2)
        clock.advance(100)
        assert len(await store.due(10)) == 6
        assert all(answer.applied for answer in await sweep_all(store))
        assert await store.due(10) == []
        claimed = [str(row.id) for row in await claim_all(store, "running", "later", queue)]
        assert sorted(claimed) == sorted([*expired, *due])
